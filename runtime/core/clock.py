"""The two clocks by which decoding is timed: seconds as people count them, and those for which this thread had a core.

On a machine of its own they agree. Knows no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]  # seconds since some moment
FINE = 1e-5  # seconds that a clock must be able to tell apart; Windows counts a thread's time in sixtieths of a second


def wall() -> float:
    """Seconds as people count them."""
    return time.perf_counter()


def steadiest() -> Clock:
    """The clock that other processes disturb least: what this thread waits while they have its core does not count."""
    return time.thread_time if time.get_clock_info("thread_time").resolution < FINE else time.perf_counter
