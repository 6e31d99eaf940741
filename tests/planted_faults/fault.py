"""A planted fault as its patch tells it: the change, what that breaks, and the tests that catch it.

Knows the form of patches; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MARK = "Caught-by: "


@dataclass(frozen=True, slots=True)
class Fault:
    """One patch."""

    name: str
    breaks: str  # in one sentence
    tests: tuple[str, ...]  # that catch it, as pytest names them, without parameters
    change: str  # what `git apply` takes


def read_fault(path: Path) -> Fault:
    """Return the fault that a patch plants. Raises ValueError where its head lacks the sentence or a test."""
    head, _, diff = path.read_text(encoding="utf8").partition("\ndiff --git ")
    lines = head.splitlines()
    tests = tuple(line.removeprefix(MARK).strip() for line in lines if line.startswith(MARK))
    breaks = " ".join(line for line in lines if line and not line.startswith(MARK))
    if not (breaks and tests and diff):
        raise ValueError(f"{path.name} needs a sentence, a line '{MARK}tests/…', and a diff after a blank line")
    return Fault(path.stem, breaks, tests, f"diff --git {diff}")


def read_faults(names: Sequence[str] = (), folder: Path = HERE) -> list[Fault]:
    """Return the faults whose names begin so, all without names. Raises ValueError for a name that none has."""
    found = [read_fault(path) for path in sorted(folder.glob("*.patch"))]
    if unknown := next((name for name in names if not any(fault.name.startswith(name) for fault in found)), None):
        raise ValueError(f"there is no planted fault '{unknown}' in {folder.name}")
    return [fault for fault in found if not names or fault.name.startswith(tuple(names))]
