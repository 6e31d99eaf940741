"""Chooses the number of threads while decoding. Another busy process can make two threads a hundred times slower than
one, because each waits for the other at every step of a pass.

Knows times and numbers; does not run passes. No more threads are used than there are cores free of other processes.
Within that limit, a trial is an ordinary pass with another number of threads, so it costs only the difference.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

from runtime.core.clock import Clock, steadiest
from runtime.speculative.control.tuning import TUNING


class ThreadTrial:
    """Comparison of passes with `n` threads to passes with the current number. `own` are the latest times of the
    current number, relative to the estimate. On a shared machine single passes stall, so the two numbers alternate
    in blocks and their averages are compared.
    """

    def __init__(self, n: int, own: Sequence[float]) -> None:
        self.n, self._own, self._times, self._n_passes = n, [*own], list[float](), 0

    @property
    def is_on(self) -> bool:
        """Whether the next pass uses `n` threads."""
        return self._n_passes // TUNING.trial_block % 2 == 0

    def observe(self, relative: float) -> None:
        """Add the time of a pass, relative to the estimate for the current number of threads."""
        (self._times if self.is_on else self._own).append(relative)
        self._n_passes += 1

    @property
    def found(self) -> float:
        """Average time of passes with `n` threads, relative to the estimate for the current number."""
        return usual(self._times)

    @property
    def verdict(self) -> bool | None:
        """Whether to use `n` threads; None while undecided."""
        n, ratio = len(self._times), self.found / usual(self._own)
        if ratio >= (TUNING.hopeless_trial if n < 2 else TUNING.worse_trial):
            return False
        if n == TUNING.trial_block * TUNING.trial_blocks or (n >= TUNING.trial_passes and ratio < TUNING.clear_trial):
            return ratio < TUNING.better_trial
        return None


def usual(times: Sequence[float]) -> float:
    """Return the mean, in which each time counts at most twice the median."""
    most = 2 * median(times)
    return sum(min(each, most) for each in times) / len(times)


class ThreadChoice:
    """Choice for one kind of passes: `n` threads within the limit, unless a trial uses another number."""

    def __init__(self, options: Sequence[int], n: int) -> None:
        self.options, self.n = sorted({*options, n}), n
        self._limit = max(self.options)
        self._is_settling = False  # whether the limit changed and the new time of passes is not known yet
        self._recent: deque[float] = deque(maxlen=5)  # times with n threads, relative to the estimate
        self._trial: ThreadTrial | None = None
        self._settled: list[float] = []  # the same since the limit changed
        # If fewer threads than the maximum were chosen at load, the machine may have been busy: try others soon
        self._waited, self._wait = 0, TUNING.first_trial if n == max(self.options) else 0
        self._before: dict[int, float] = {}  # width -> estimated seconds after the last trial
        self._next = 0

    @property
    def tried(self) -> int:
        """Number of threads for the next pass."""
        return min(self._trial.n if self._trial and self._trial.is_on else self.n, self._limit)

    @property
    def is_on_trial(self) -> bool:
        """Whether each of the next passes must be timed."""
        return self._is_settling or self._trial is not None

    def limit(self, most: int) -> None:
        """Limit the number of threads."""
        if most == self._limit:
            return
        before, self._limit = self.tried, most
        if self.tried != before:
            self._trial, self._is_settling, self._settled = None, True, []
            self._recent.clear()
        elif self._trial and self._trial.n > most:
            self._trial = None  # its next passes would have the current number of threads

    def observe(self, width: int, seconds: float, expected: float) -> float | None:
        """Learn from a pass with `tried` threads.

        Returns the factor on the time of passes from now on if the number of threads changed, 1 if it did not, and
        None during a trial or until the time after a new limit is known.
        """
        if self._is_settling:
            return self._settle(seconds / expected)
        if self._trial:
            return self._judge(self._trial, seconds / expected)
        self._recent.append(seconds / expected)
        self._waited += 1
        has_drifted = expected > TUNING.drifted_pass * self._before.setdefault(width, expected)
        if self._others and len(self._recent) == self._recent.maxlen and (has_drifted or self._waited >= self._wait):
            self._begin_trial()
        return 1.0

    def _settle(self, relative: float) -> float | None:
        """Measure a few passes after the limit changed. Return the factor on their time, or None until it is known."""
        self._settled.append(relative)
        if len(self._settled) < TUNING.trial_passes:
            return None
        self._is_settling = False
        self._before.clear()
        return median(self._settled)

    @property
    def _others(self) -> list[int]:
        """Other numbers of threads within the limit."""
        return [option for option in self.options if option != self.n and option <= self._limit]

    def _begin_trial(self) -> None:
        """Begin a trial of another number of threads; the candidates take turns."""
        others = self._others
        self._trial, self._next = ThreadTrial(others[self._next % len(others)], self._recent), self._next + 1
        self._waited = 0
        self._before.clear()

    def _judge(self, trial: ThreadTrial, relative: float) -> float | None:
        """Continue the trial; use its number of threads if it was fast enough. Returns as `observe` does."""
        was_on = trial.is_on
        trial.observe(relative)
        verdict = trial.verdict if was_on else None
        if verdict is None:
            return None if was_on else 1.0
        self._trial = None
        self._recent.clear()
        if not verdict:
            self._wait = min(max(TUNING.first_trial, 2 * self._wait), TUNING.last_trial)
            return None
        self.n, self._wait = trial.n, TUNING.first_trial
        return trial.found


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
        self._n_looks = TUNING.soon_looks * TUNING.most_calm_looks  # looks since a pass was stalled
        others.pause()

    @property
    def n_free(self) -> int:
        """Number of free cores, at least one."""
        return max(1, self.n_cores - self.n_taken)

    def look(self) -> None:
        """Measure at intervals. A higher number counts immediately, a lower one after several looks in a row."""
        if (now := time.perf_counter()) < self._next_look:
            return
        self._next_look = now + TUNING.watch_seconds
        if (busy := self.others.busy_cores()) is not None:
            self._n_looks += 1
            self._note(round(busy))

    def note_held_up(self, n_had: float) -> None:
        """Record a stalled pass whose threads had only `n_had` cores.

        If passes stall again soon, the cores count as taken for twice as long. Other threads of Slipstream itself can
        cause this, and `others` does not measure them.
        """
        is_again = self._n_looks <= TUNING.soon_looks * self._n_calm
        self._n_calm = min(2 * self._n_calm, TUNING.most_calm_looks) if is_again else TUNING.calm_looks
        self._n_looks = 0
        self._note(max(self.n_taken, self.n_cores - int(n_had)))

    def _note(self, n_taken: int) -> None:
        self._found = [*self._found, n_taken][-self._n_calm :]
        self.n_taken = max(self._found)


class Threads:
    """Numbers of threads for the target's one-row passes, its wider passes and the draft model; applied on change."""

    def __init__(
        self,
        options: Sequence[int],
        one: int,
        many: int,
        draft: int,
        apply: Callable[[int, int, int], None],
        watch: Watch | None = None,
    ) -> None:
        self.one, self.many, self.draft = (ThreadChoice(options, n) for n in (one, many, draft))
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
        tried, change = choice.tried, choice.observe(width, seconds, expected)
        if self._watch and seconds > TUNING.stalled_pass * expected and n_had < tried - TUNING.lacked_cores:
            self._watch.note_held_up(n_had)
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
        wanted = self.one.tried, self.many.tried, self.draft.tried
        if wanted != self._applied:
            self._apply(*wanted)
            self._applied = wanted

    def _limit(self) -> None:
        """Limit all numbers of threads to the free cores."""
        for choice in (self.one, self.many, self.draft):
            if self._watch:
                choice.limit(self._watch.n_free)
