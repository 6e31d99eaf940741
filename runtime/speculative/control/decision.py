"""Whether a drafter is asked in a step, and why."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Decision(Enum):
    """`asks`: is the drafter asked?"""

    SKIP = "it would not pay, and trying it has cost enough for now", False
    WAIT = "it would not pay, and is tried again later", False
    LOOK_UP = "asking costs next to nothing, or the draft length is fixed", True
    USE = "it pays", True
    PROBE = "it is time to see again whether it pays", True
    MEASURE = "the pass is plain, so that what plain passes take stays known", False

    def __init__(self, why: str, asks: bool) -> None:
        self.why, self.asks = why, asks


# Looked up so by name, a member takes a tenth of the time
SKIP, WAIT, LOOK_UP, USE, PROBE = list(Decision)[:5]


class Choice(NamedTuple):
    """What becomes of a drafter in a step."""

    decision: Decision
    limit: int | None = None  # tokens that it drafts whatever they are worth: a length that is fixed, or a probe's
