"""How busy other processes keep the cores that this one may use. Knows the system's counters and the clock; decides
nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

# Seconds that a reading must span, because the counters move in steps of a hundredth; after which it tells of the past
WINDOW, STALE = 0.06, 5.0
# Of a core, that our other processes may take while passes are timed; the longest time to wait until they take less
CALM, LONGEST = 0.3, 2.0
# Of a core's seconds, those in which it works for anyone; processes that are said to give way ("nice") do so only
# within their own session
TAKEN = "user", "nice", "system", "irq", "softirq", "steal"
family = set[int]()  # other processes that are parts of Slipstream: they are no neighbours


class Neighbours:
    """What other processes take of this one's cores, since the last look."""

    def __init__(self) -> None:
        self._last = readings()
        self._began, self._relatives = time.perf_counter(), family_seconds()

    def busy_cores(self) -> float | None:
        """Cores that others kept busy since the last look; None where that is too short or long ago, or not known."""
        before, now = self._last, readings()
        if before is None or now is None or now[0] - before[0] < WINDOW:
            return None
        self._last = now
        if now[0] - before[0] > STALE:
            return None
        span, taken, own = (after - then for after, then in zip(now, before, strict=True))
        return max(0.0, taken - own) / span

    def wait_for_family(self) -> None:
        """Returns as soon as our other processes leave the cores alone, which load what they need at the same time."""
        end = time.perf_counter() + LONGEST
        while not self._is_family_calm() and time.perf_counter() < end:
            time.sleep(WINDOW)

    def _is_family_calm(self) -> bool:
        """Since it was last asked."""
        span, seconds = time.perf_counter() - self._began, family_seconds() - self._relatives
        self._began, self._relatives = self._began + span, self._relatives + seconds
        return seconds <= CALM * span

    def wait(self) -> float:
        """Cores that others keep busy, as soon as the time since the last look is long enough to tell; 0 where nobody
        knows.
        """
        for _ in range(2):  # the first look may be a stale one
            if self._last is not None:
                time.sleep(max(0.0, self._last[0] + WINDOW - time.perf_counter()))
            if (busy := self.busy_cores()) is not None:
                return busy
        return 0.0


def readings() -> tuple[float, float, float] | None:
    """The time, what this process's cores did for anyone, and what this process and its family did, in seconds."""
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, psutil.Error):
        return None
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    taken = sum(getattr(cores[core], what, 0.0) for core in mine if core < len(cores) for what in TAKEN)
    return time.perf_counter(), taken, time.process_time() + family_seconds()


def family_seconds() -> float:
    """What our other processes computed, those left out that are gone."""
    seconds = 0.0
    for process in family:
        with suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            seconds += times.user + times.system
    return seconds
