"""Whether a drafter is asked in a step, and why."""

from __future__ import annotations

from enum import Enum


class Decision(Enum):
    """`asks`: is the drafter asked?"""

    SKIP = "not in this step", False
    WAIT = "it is parked until its next probe", False
    LOOK_UP = "asking costs next to nothing, or the draft length is fixed", True
    USE = "it pays", True
    PROBE = "it is time to see again whether it pays", True

    def __init__(self, why: str, asks: bool) -> None:
        self.why, self.asks = why, asks


SKIP, WAIT, LOOK_UP, USE, PROBE = Decision  # looked up so by name, a member takes a tenth of the time
