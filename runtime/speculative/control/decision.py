"""Decisions on whether a drafter proposes in a step, with reasons."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Decision(Enum):
    """Decision about a drafter in a step: `asks` is whether it proposes, `why` is the reason."""

    SKIP = "it would not pay, and probes have cost enough for now", False
    WAIT = "it would not pay, and is probed again later", False
    LOOK_UP = "it costs almost nothing, or the draft length is fixed", True
    USE = "it pays", True
    PROBE = "a probe measures again whether it pays", True
    MEASURE = "the pass is plain, to keep the time of plain passes known", False
    LATE = "another draft was found first", False
    CROWDED = "the pass had no room left for its draft, or it failed", False

    def __init__(self, why: str, asks: bool) -> None:
        self.why, self.asks = why, asks


# A module name takes a tenth of the time of a member lookup
SKIP, WAIT, LOOK_UP, USE, PROBE = list(Decision)[:5]


class Choice(NamedTuple):
    """The decision about a drafter in a step, and the length of its draft."""

    decision: Decision
    limit: int | None = None  # draft length that is fixed or set by a probe; None: the policy decides
