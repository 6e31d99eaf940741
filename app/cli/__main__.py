"""`python -m app.cli` is the command `slipstream`."""

from app.cli.main import main

main()
