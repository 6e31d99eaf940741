"""How busy other processes keep the cores that this one may use. Knows the system's counters and the clock; decides
nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

# Seconds that a reading must span, because the counters move in steps of a hundredth; after which it tells of the past
WINDOW, STALE = 0.06, 5.0
# Of a core, that our other processes may take while passes are timed; the longest time to wait until they take less
CALM, LONGEST = 0.3, 2.0
# Of a core's seconds, those in which it works for anyone; processes that are said to give way ("nice") do so only
# within their own session
TAKEN = "user", "nice", "system", "irq", "softirq", "steal"
family = set[int]()  # other processes that are parts of Slipstream: they are no neighbours


class CoreSeconds(NamedTuple):
    """The time, what this process's cores did for anyone, and what this process and its family did, in seconds."""

    time: float = 0.0
    taken: float = 0.0
    own: float = 0.0


NOTHING = CoreSeconds()


class Neighbours:
    """What other processes take of this one's cores, but for the times in which it computes nothing itself."""

    def __init__(self) -> None:
        self._since, self._seen = readings(), NOTHING  # since when it is counted what they take; what was counted
        self._paused = 0.0
        self._began, self._relatives = time.perf_counter(), family_seconds()

    def pause(self) -> None:
        """What they take from now on does not matter."""
        self._count()
        self._since, self._paused = None, time.perf_counter()

    def resume(self) -> None:
        """It matters again."""
        if self._since is None:
            self._since = readings()
            if time.perf_counter() - self._paused > STALE:
                self._seen = NOTHING

    def _count(self) -> None:
        before, self._since = self._since, readings()
        if before is not None and self._since is not None:
            changed = zip(self._seen, self._since, before, strict=True)
            self._seen = CoreSeconds(*(so_far + now - then for so_far, now, then in changed))

    def busy_cores(self) -> float | None:
        """Cores that others kept busy since it was last known; None where that is too short or long, or not known."""
        self._count()
        seen = self._seen
        if seen.time < WINDOW:
            return None
        self._seen = NOTHING
        return max(0.0, seen.taken - seen.own) / seen.time if seen.time <= STALE else None

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
        """Cores that others keep busy, as soon as what was seen is long enough to tell; 0 where nobody knows."""
        for _ in range(2):  # what was seen so far may be stale
            if self._since is not None:
                time.sleep(max(0.0, self._since.time - self._seen.time + WINDOW - time.perf_counter()))
            if (busy := self.busy_cores()) is not None:
                return busy
        return 0.0


def readings() -> CoreSeconds | None:
    """All as it is now; None where nobody may know."""
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, KeyError, psutil.Error):  # KeyError: psutil is gone already, as the interpreter ends
        return None
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    taken = sum(getattr(cores[core], what, 0.0) for core in mine if core < len(cores) for what in TAKEN)
    return CoreSeconds(time.perf_counter(), taken, time.process_time() + family_seconds())


def family_seconds() -> float:
    """What our other processes computed, those left out that are gone."""
    seconds = 0.0
    for process in family:
        with suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            seconds += times.user + times.system
    return seconds
