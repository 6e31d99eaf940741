"""How another Python finds these packages. Knows where they are; knows no processes."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGES = Path(__file__).parents[2]  # these, and not a folder of the same name in which somebody works


def own_environment() -> dict[str, str]:
    """The variables with which another Python finds these packages."""
    paths = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
