"""The models' process, with every prompt worth storing and taking: the bundled model reads too fast for that."""

from __future__ import annotations

from runtime.engine import prefixes
from runtime.engine.prefixes import Worth
from runtime.process.host import main

if __name__ == "__main__":
    prefixes.THRESHOLDS = Worth(seconds=0.0, gain=0.0)
    main()
