"""The models' process, with every prompt worth storing and taking: the bundled model reads too fast for that."""

from __future__ import annotations

from runtime.engine import stored_states
from runtime.engine.process.host import main
from runtime.engine.stored_states import Worth

if __name__ == "__main__":
    stored_states.THRESHOLDS = Worth(seconds=0.0, gain=0.0)
    main()
