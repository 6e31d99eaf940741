"""The command `slipstream`, also `python -m app.cli`: nothing but what must come before its imports."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else who started it wants no interrupts
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl+C among the imports is no traceback

from app.cli.main import main

if __name__ == "__main__":
    main()
