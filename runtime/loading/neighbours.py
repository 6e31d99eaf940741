"""Measures the load by other processes on the cores that this one may use.

Knows the system's counters and the clock; decides nothing.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from runtime.core.cores import usable

# Seconds: the minimum span of a reading, because the counters move in steps of a hundredth, and the span after which it
# is out of date
WINDOW, STALE = 0.06, 5.0
# Share of a core that our other processes may use while passes are timed; the longest wait for that in seconds
CALM, MAX_WAIT = 0.3, 2.0
# The counters of a core's work for any process. Those of low priority ("nice") are included, because they yield only
# within their own session
TAKEN = "user", "nice", "system", "irq", "softirq", "steal"
family = set[int]()  # ids of other processes that are parts of Slipstream: they are no neighbours


class CoreSeconds(NamedTuple):
    """The time, all work of this process's cores, and the work of this process and its family, in seconds."""

    time: float = 0.0
    taken: float = 0.0
    own: float = 0.0


NOTHING = CoreSeconds()


class Neighbours:
    """The load by other processes on this one's cores, except for the times in which it computes nothing itself."""

    def __init__(self) -> None:
        self._since, self._seen = readings(), NOTHING  # start of the current count; sum of earlier counts
        self._paused = 0.0
        self._began, self._relatives = time.perf_counter(), family_seconds()

    def pause(self) -> None:
        """Stop counting."""
        self._count()
        self._since, self._paused = None, time.perf_counter()

    def resume(self) -> None:
        """Continue counting; after a pause of more than STALE seconds, start again."""
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
        """Return the number of cores that others kept busy since the last result.

        None where that time is too short or too long, or the counters are unavailable.
        """
        self._count()
        seen = self._seen
        if seen.time < WINDOW:
            return None
        self._seen = NOTHING
        return max(0.0, seen.taken - seen.own) / seen.time if seen.time <= STALE else None

    def are_calm(self) -> bool:
        """Return whether others used little of the cores since the last result, as far as is known."""
        return (self.busy_cores() or 0.0) <= CALM

    def wait_for_family(self) -> None:
        """Wait up to MAX_WAIT seconds until our other processes, which load at the same time, leave the cores idle."""
        end = time.perf_counter() + MAX_WAIT
        while not self._is_family_calm() and time.perf_counter() < end:
            time.sleep(WINDOW)

    def _is_family_calm(self) -> bool:
        """Return whether our other processes used little of a core since the last call."""
        span, seconds = time.perf_counter() - self._began, family_seconds() - self._relatives
        self._began, self._relatives = self._began + span, self._relatives + seconds
        return seconds <= CALM * span

    def wait(self) -> float:
        """Return the number of cores that others keep busy, after a long enough reading; 0 where it is unknown."""
        for _ in range(2):  # the first reading may be stale
            if self._since is not None:
                time.sleep(max(0.0, self._since.time - self._seen.time + WINDOW - time.perf_counter()))
            if (busy := self.busy_cores()) is not None:
                return busy
        return 0.0


def is_calm() -> bool:
    """Return whether others use little of the cores now, so that a measurement may be kept; takes WINDOW seconds."""
    return Neighbours().wait() <= CALM


def readings() -> CoreSeconds | None:
    """Return the current counters; None where they may not be read."""
    try:
        cores = psutil.cpu_times(percpu=True)
    except (OSError, RuntimeError, KeyError, psutil.Error):  # KeyError: psutil is unloaded when the interpreter ends
        return None
    taken = sum(getattr(cores[core], what, 0.0) for core in usable() if core < len(cores) for what in TAKEN)
    return CoreSeconds(time.perf_counter(), taken, time.process_time() + family_seconds())


def family_seconds() -> float:
    """Return the CPU seconds of our other processes that still exist."""
    seconds = 0.0
    for process in family:
        with suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            seconds += times.user + times.system
    return seconds
