"""Limits the number of threads to the cores that other processes leave free. A busy one can make two threads a hundred
times slower than one, because each waits for the other at every step of a pass.

Knows times and numbers; does not run passes. The fastest number on a quiet machine is measured at load.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Protocol

from runtime.core.cores import Clock, steadiest
from runtime.speculative.control.tuning import TUNING


class ThreadChoice:
    """Number of threads for one kind of passes: `n`, or fewer where the limit is lower."""

    def __init__(self, n: int) -> None:
        self._n, self._limit = n, n
        self._settling: list[float] | None = None  # relative times of passes since the limit changed, until it is known

    @property
    def n(self) -> int:
        """Number of threads for the next pass."""
        return min(self._n, self._limit)

    @property
    def is_settling(self) -> bool:
        """Whether each of the next passes must be timed, because their time with a new number is not known yet."""
        return self._settling is not None

    def limit(self, most: int) -> None:
        """Limit the number of threads."""
        before, self._limit = self.n, most
        if self.n != before:
            self._settling = []

    def observe(self, relative: float) -> float | None:
        """Learn from a pass that took `relative` times the estimate.

        Returns the factor on the time of passes from now on after a change of their number of threads, 1 without one,
        and None until it is known.
        """
        if self._settling is None:
            return 1.0
        self._settling.append(relative)
        if len(self._settling) < TUNING.settling_passes:
            return None
        factor, self._settling = median(self._settling), None
        return factor


class Others(Protocol):
    """Measures the cores used by other processes."""

    def busy_cores(self) -> float | None:
        """Return the cores that other processes kept busy since the last call; None if unknown."""

    def pause(self) -> None:
        """Stop measuring."""

    def resume(self) -> None:
        """Measure again."""


class Watch:
    """Number of the `n_cores` cores that other processes use during passes; `n_taken` is the initial number."""

    def __init__(self, n_cores: int, others: Others, n_taken: int = 0) -> None:
        self.n_cores, self.others, self.n_taken = n_cores, others, n_taken
        self._found, self._next_look = [n_taken], 0.0  # results of the last looks; their maximum counts
        self._n_calm = TUNING.calm_looks  # number of looks in `_found`
        self._n_looks = TUNING.soon_looks * TUNING.most_calm_looks  # looks since stalls took a core
        self._lost = 0.0  # seconds lost to stalls lately
        others.pause()

    @property
    def n_free(self) -> int:
        """Number of free cores, at least one."""
        return max(1, self.n_cores - self.n_taken)

    def look(self) -> None:
        """Measure at intervals. A higher number counts immediately, a lower one after several looks in a row."""
        if (now := time.perf_counter()) < self._next_look:
            return
        self._next_look, self._lost = now + TUNING.watch_seconds, self._lost / 2
        if (busy := self.others.busy_cores()) is not None:
            self._n_looks += 1
            self._note(round(busy))

    def note_stall(self, lost: float, n_had: float) -> None:
        """Record a stalled pass whose threads had only `n_had` cores, which cost `lost` seconds.

        Cores count as taken once stalls have cost as much as doing without these cores for a while. If that happens
        again soon, they count as taken for twice as long. Other threads of Slipstream itself can cause this, and
        `others` does not measure them.
        """
        self._lost += lost
        n_taken = self.n_cores - int(n_had)
        if self._lost < TUNING.calm_looks * TUNING.watch_seconds * n_taken / self.n_cores:
            return
        is_again = self._n_looks <= TUNING.soon_looks * self._n_calm
        self._n_calm = min(2 * self._n_calm, TUNING.most_calm_looks) if is_again else TUNING.calm_looks
        self._n_looks, self._lost = 0, 0.0
        self._note(max(self.n_taken, n_taken))

    def _note(self, n_taken: int) -> None:
        self._found = [*self._found, n_taken][-self._n_calm :]
        self.n_taken = max(self._found)


class Threads:
    """Numbers of threads for the target's one-row passes, its wider passes and the draft model; applied on change."""

    def __init__(
        self,
        one: int,
        many: int,
        draft: int,
        apply: Callable[[int, int, int], None],
        watch: Watch | None = None,
    ) -> None:
        self.one, self.many, self.draft = (ThreadChoice(n) for n in (one, many, draft))
        self._apply, self._applied, self._watch = apply, (0, 0, 0), watch
        self._steadiest = steadiest()
        self._limit()

    @property
    def clock(self) -> Clock:
        """Clock for timing steps: it excludes waiting for other processes while they use cores."""
        return self._steadiest if self._watch and self._watch.n_taken else time.perf_counter

    def of(self, width: int) -> ThreadChoice:
        """Return the choice for the target's passes of this width."""
        return self.one if width == 1 else self.many

    def observe(self, width: int, seconds: float, expected: float, n_had: float) -> float | None:
        """Learn from a pass of the target whose threads had `n_had` cores; see `ThreadChoice.observe`. A pass that
        stalled for lack of cores shows that other processes compute.
        """
        choice = self.of(width)
        n, change = choice.n, choice.observe(seconds / expected)
        if self._watch and seconds > TUNING.stalled_pass * expected and n_had < n - TUNING.lacked_cores:
            self._watch.note_stall(seconds - expected, n_had)
            self._limit()
        return change

    def pause(self) -> None:
        """Stop measuring other processes while no passes run."""
        if self._watch:
            self._watch.others.pause()

    def resume(self) -> None:
        """Measure other processes again, because passes run."""
        if self._watch:
            self._watch.others.resume()

    def set(self) -> None:
        """Apply the numbers of threads for the next pass."""
        if self._watch:
            self._watch.look()
            self._limit()
        wanted = self.one.n, self.many.n, self.draft.n
        if wanted != self._applied:
            self._apply(*wanted)
            self._applied = wanted

    def _limit(self) -> None:
        """Limit all numbers of threads to the free cores."""
        for choice in (self.one, self.many, self.draft):
            if self._watch:
                choice.limit(self._watch.n_free)
