"""Why a head is not trained now, in a clause: what is lacking, or who needs the machine more.

Reads the system; starts nothing.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import psutil

from runtime.core.errors import ModelError
from runtime.memory.system import MemoryReader
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair

LEARNS = "eagle"  # the drafter whose head can be trained further
PER_WEIGHT = 20  # bytes of a training for each weight of the head: itself, its gradient, two averages, what passes by
BASE = 1_200_000_000  # bytes of PyTorch, and of texts with what the target says of them
SPARE = 1_500_000_000  # bytes that stay free beside it


def why_never(pair: Pair, drafter: str) -> str:
    """What of the pair, whose draft is for that drafter, stands against it; "" for nothing."""
    if not pair.learn:
        return "`learn = true` is not set for this pair"
    if pair.draft is None or drafter != LEARNS:
        return "only a draft that is an EAGLE-3 head can be trained further"
    return "" if find_spec("torch") else "PyTorch is not installed (`pip install 'slipstream[train]'`)"


def why_not_now(memory_level: str, needed: int) -> str:
    """What stands against a training of so many bytes at the moment; "" for nothing."""
    if memory_level != "OK":
        return f"memory is {memory_level}"
    if is_on_battery():
        return "the machine runs on its battery"
    if (free := free_bytes()) is not None and free < needed + SPARE:
        return f"it would need {(needed + SPARE) / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free"
    return ""


def is_on_battery() -> bool:
    """Does nobody supply the machine with power? False where that is not known."""
    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError, psutil.Error):
        return False
    return battery is not None and battery.power_plugged is False


def free_bytes() -> int | None:
    """What the machine, and whatever bounds this process, have left; None where that is not known."""
    return min((pool.free for pool in MemoryReader(tuple)().pools if not pool.is_device), default=None)


def needed_bytes(target: Path, head: Path) -> int:
    """What a training takes at most, which has the target beside it."""
    try:
        facts = ModelFacts(read_model_header(head))
        return PER_WEIGHT * facts.n_parameters + target.stat().st_size + BASE
    except (ModelError, OSError):
        return BASE
