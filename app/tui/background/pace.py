"""Limits how often the screen is drawn, so that drawing leaves the interpreter to the decoding thread.

Knows clocks; knows no widgets.
"""

from __future__ import annotations

import time

FIRST = 0.1  # seconds until a reply is first shown: a fast model has generated most of it by then
PAUSE = 0.04  # minimal seconds for which text is gathered before it is shown
MAX_INTERVAL = 0.5  # maximal seconds between two updates, whatever drawing costs
SHARE = 0.08  # maximal share of the time spent on drawing
SWITCH = 1e-4  # seconds for which a thread may hold the interpreter: a pass requires it about thirty times


class Pace:
    """The pauses between two updates of one reply. Used in the drawing thread."""

    def __init__(self) -> None:
        self._worked: float | None = None  # CPU seconds of this thread at the last call

    def pause(self) -> float:
        """Return the seconds to gather text, long enough that the work since the last call is a small share of the
        time.
        """
        now = time.thread_time()
        before, self._worked = self._worked, now
        return FIRST if before is None else min(MAX_INTERVAL, max(PAUSE, (now - before) / SHARE))
