"""Environment with which another Python process imports these packages. Knows their location; knows no processes."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGES = Path(__file__).parents[2]  # these, not packages of the same name in the working directory


def own_environment() -> dict[str, str]:
    """Return the environment variables with which another Python imports these packages."""
    paths = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
