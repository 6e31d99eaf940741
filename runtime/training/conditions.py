"""Conditions for training: the modules of the extra `train`; and for training a head further, a missing requirement or
a more urgent use of the machine, as a clause.

Reads the system; starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import psutil

from runtime.core.errors import ModelError, SlipstreamError
from runtime.core.memory import MemoryReader
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair

LEARNS = "eagle"  # the drafter whose head can be trained further
PER_WEIGHT = 20  # bytes of a training per weight of the head: itself, its gradient, two averages, temporary values
BASE = 1_200_000_000  # bytes of PyTorch, and of texts with the target's outputs for them
SPARE = 1_500_000_000  # bytes that must stay free in addition
MODULES = "torch", "gguf"


def why_never(pair: Pair, drafter: str) -> str:
    """Return why this pair's draft, which is for that drafter, cannot be trained at all; "" if it can."""
    if not pair.learn:
        return "`learn = true` is not set for this pair"
    if pair.draft is None or drafter != LEARNS:
        return "only a draft that is an EAGLE-3 head can be trained further"
    return "" if find_spec("torch") else "PyTorch is not installed (`pip install 'slipstream[train]'`)"


def why_not_now(memory_level: str, needed: int) -> str:
    """Return why a training of `needed` bytes cannot run at the moment; "" if it can."""
    if memory_level != "OK":
        return f"memory is {memory_level}"
    if is_on_battery():
        return "the machine runs on battery"
    if (free := free_bytes()) is not None and free < needed + SPARE:
        return f"it would need {(needed + SPARE) / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
    return ""


def is_on_battery() -> bool:
    """Return whether the machine runs on its battery; False where that is unknown."""
    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError, psutil.Error):
        return False
    return battery is not None and battery.power_plugged is False


def free_bytes() -> int | None:
    """Return the free bytes of the machine, or of this process's limits if less; None where that is unknown."""
    return min((pool.free for pool in MemoryReader(tuple)().pools if not pool.is_device), default=None)


def needed_bytes(target: Path, head: Path) -> int:
    """Return the most bytes that a training takes, including the target."""
    try:
        facts = ModelFacts(read_model_header(head))
        return PER_WEIGHT * facts.n_parameters + target.stat().st_size + BASE
    except (ModelError, OSError):
        return BASE


class TrainingError(SlipstreamError):
    """A draft cannot be trained, or not now; finished work is kept."""


def require_extra() -> None:
    """Raise TrainingError if a module that training needs is missing, or cannot be loaded."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise TrainingError(
            f"Training needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed. "
            "Install what is missing with `pip install 'slipstream[train]'`."
        )
    try:
        import_module(MODULES[0])
    except (ImportError, OSError) as error:
        raise TrainingError(
            f"{MODULES[0]} is installed and cannot be loaded ({str(error).strip().splitlines()[0]}). Install it again "
            "with `pip install --force-reinstall torch`."
        ) from error
