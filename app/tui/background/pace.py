"""When to draw again, so that drawing leaves the interpreter to the thread that decodes.

Knows clocks; knows no widgets.
"""

from __future__ import annotations

import time

FIRST = 0.1  # seconds until a reply is shown first: a fast model has said most of it by then
PAUSE = 0.04  # seconds in which text is gathered before it is shown
LONGEST = 0.5  # seconds after which there is something new to see, whatever it costs
SHARE = 0.08  # of the time may go into drawing
SWITCH = (
    1e-4  # seconds for which one thread may keep the interpreter from another: a pass asks for it some thirty times
)


class Pace:
    """The pauses between two looks at one reply. Asked in the thread that draws."""

    def __init__(self) -> None:
        self._worked: float | None = None  # seconds that this thread had worked when it was asked last

    def pause(self) -> float:
        """Seconds to gather, long enough that the work since the last look is a small share of the time."""
        now = time.thread_time()
        before, self._worked = self._worked, now
        return FIRST if before is None else min(LONGEST, max(PAUSE, (now - before) / SHARE))
