"""The two clocks that time decoding: wall time and the CPU time of this thread.

On an otherwise idle machine they agree. Knows no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]  # seconds since an arbitrary moment
FINE = 1e-5  # seconds, the required clock resolution; on Windows, thread time has a resolution of 1/60 s


def wall() -> float:
    """Return the wall time in seconds."""
    return time.perf_counter()


def steadiest() -> Clock:
    """Return the clock that other processes disturb least: thread time, or wall time where thread time is coarse."""
    return time.thread_time if time.get_clock_info("thread_time").resolution < FINE else time.perf_counter
