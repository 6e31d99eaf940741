"""Which number of threads is fastest, watched while decoding: another busy process can make two threads a hundred times
slower than one, because each waits for the other at every step of a pass.

Knows times and numbers; the pass itself is made by others. No more threads are used than there are cores that nobody
else keeps busy. Among as many as that, a trial is an ordinary pass with another number, so it costs only the
difference.
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
    """Passes made with `n` threads, compared with those of the present number: `own` are the last of those, over the
    expected.

    On a machine that others use as well, single passes are held up, so the two are compared in turns and on average.
    """

    def __init__(self, n: int, own: Sequence[float]) -> None:
        self.n, self._own, self._times, self._n_passes = n, [*own], list[float](), 0

    @property
    def is_on(self) -> bool:
        """Is the next pass made with `n`?"""
        return self._n_passes // TUNING.trial_block % 2 == 0

    def observe(self, relative: float) -> None:
        """Takes in a pass, which took so many times what was expected of the present number."""
        (self._times if self.is_on else self._own).append(relative)
        self._n_passes += 1

    @property
    def found(self) -> float:
        """What passes with `n` take."""
        return usual(self._times)

    @property
    def verdict(self) -> bool | None:
        """Should `n` be taken? None while that is not known."""
        n, ratio = len(self._times), self.found / usual(self._own)
        if ratio >= (TUNING.hopeless_trial if n < 2 else TUNING.worse_trial):
            return False
        if n == TUNING.trial_block * TUNING.trial_blocks or (n >= TUNING.trial_passes and ratio < TUNING.clear_trial):
            return ratio < TUNING.better_trial
        return None


def usual(times: Sequence[float]) -> float:
    """Their mean, where one that was held up counts as two."""
    most = 2 * median(times)
    return sum(min(each, most) for each in times) / len(times)


class ThreadChoice:
    """One kind of passes: `n` threads are used, as far as the limit allows, unless a trial is on."""

    def __init__(self, options: Sequence[int], n: int) -> None:
        self.options, self.n = sorted({*options, n}), n
        self._limit = max(self.options)
        self._is_settling = False  # the limit has changed, and what passes take now is not known yet
        self._recent: deque[float] = deque(maxlen=5)  # times with n, over the expected
        self._trial: ThreadTrial | None = None
        self._settled: list[float] = []  # the same since the limit has changed
        # Fewer than there could be were chosen in a moment, which may have been a busy one
        self._waited, self._wait = 0, TUNING.first_trial if n == max(self.options) else 0
        self._before: dict[int, float] = {}  # width -> seconds expected after the last trial
        self._next = 0

    @property
    def tried(self) -> int:
        """The number that the next pass is made with."""
        return min(self._trial.n if self._trial and self._trial.is_on else self.n, self._limit)

    @property
    def is_on_trial(self) -> bool:
        """Is what the next passes take needed, each of it?"""
        return self._is_settling or self._trial is not None

    def limit(self, most: int) -> None:
        """At most so many from now on."""
        if most == self._limit:
            return
        before, self._limit = self.tried, most
        if self.tried != before:
            self._trial, self._is_settling, self._settled = None, True, []
            self._recent.clear()
        elif self._trial and self._trial.n > most:
            self._trial = None  # its next passes would be made with the present number

    def observe(self, width: int, seconds: float, expected: float) -> float | None:
        """Takes in a pass made with `tried`.

        Returns by how much passes are expected to take longer or shorter from now on, when the number was changed; 1
        when it was not; None while a trial is on, whose times say nothing about `n`.
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
        """A few passes say what they take with the number that the limit has left."""
        self._settled.append(relative)
        if len(self._settled) < TUNING.trial_passes:
            return None
        self._is_settling = False
        self._before.clear()
        return median(self._settled)

    @property
    def _others(self) -> list[int]:
        """What could be tried."""
        return [option for option in self.options if option != self.n and option <= self._limit]

    def _begin_trial(self) -> None:
        """Begins a trial of another number; the others take turns."""
        others = self._others
        self._trial, self._next = ThreadTrial(others[self._next % len(others)], self._recent), self._next + 1
        self._waited = 0
        self._before.clear()

    def _judge(self, trial: ThreadTrial, relative: float) -> float | None:
        """Goes on with the trial; the number is taken when it went well."""
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
    """The processes that share the cores."""

    def busy_cores(self) -> float | None:
        """Cores that they kept busy since it was last known, if that is known."""

    def pause(self) -> None:
        """What they take from now on does not matter."""

    def resume(self) -> None:
        """It matters again."""


class Watch:
    """How many cores others take, of `n_cores`, while passes are made; `n_taken` is what is known at first."""

    def __init__(self, n_cores: int, others: Others, n_taken: int = 0) -> None:
        self.n_cores, self.others, self.n_taken = n_cores, others, n_taken
        self._found, self._next_look = [n_taken], 0.0  # by the last looks, of which the most counts
        self._n_calm = TUNING.calm_looks  # how many of them
        self._n_looks = TUNING.soon_looks * TUNING.most_calm_looks  # since a pass was held up
        others.pause()

    @property
    def n_free(self) -> int:
        """Cores that are left, at least one."""
        return max(1, self.n_cores - self.n_taken)

    def look(self) -> None:
        """More are taken at once; fewer when some looks in a row have found that."""
        if (now := time.perf_counter()) < self._next_look:
            return
        self._next_look = now + TUNING.watch_seconds
        if (busy := self.others.busy_cores()) is not None:
            self._n_looks += 1
            self._note(round(busy))

    def note_held_up(self, n_had: float) -> None:
        """The threads of a pass had only so many cores. Who holds them up again soon, as what computes beside the
        models in Slipstream itself can without being seen, is given the core for twice as long.
        """
        is_again = self._n_looks <= TUNING.soon_looks * self._n_calm
        self._n_calm = min(2 * self._n_calm, TUNING.most_calm_looks) if is_again else TUNING.calm_looks
        self._n_looks = 0
        self._note(max(self.n_taken, self.n_cores - int(n_had)))

    def _note(self, n_taken: int) -> None:
        self._found = [*self._found, n_taken][-self._n_calm :]
        self.n_taken = max(self._found)


class Threads:
    """Threads for the target's passes of one row and of several, and the draft model's; applied where they changed."""

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
        """What steps are timed by: where others compute, the time for which they kept us waiting says nothing."""
        return self._steadiest if self._watch and self._watch.n_taken else time.perf_counter

    def of(self, width: int) -> ThreadChoice:
        """The choice for the target's passes of that many rows."""
        return self.one if width == 1 else self.many

    def observe(self, width: int, seconds: float, expected: float, n_had: float) -> float | None:
        """Takes in a pass of the target whose threads had `n_had` cores, as its choice does. One that was held up for
        want of them is proof that others compute.
        """
        choice = self.of(width)
        tried, change = choice.tried, choice.observe(width, seconds, expected)
        if self._watch and seconds > TUNING.stalled_pass * expected and n_had < tried - TUNING.lacked_cores:
            self._watch.note_held_up(n_had)
            self._limit()
        return change

    def pause(self) -> None:
        """No more passes are made for a while, in which others may have the cores."""
        if self._watch:
            self._watch.others.pause()

    def resume(self) -> None:
        """Passes are made again."""
        if self._watch:
            self._watch.others.resume()

    def set(self) -> None:
        """Applies the numbers of threads that the next pass is to be made with."""
        if self._watch:
            self._watch.look()
            self._limit()
        wanted = self.one.tried, self.many.tried, self.draft.tried
        if wanted != self._applied:
            self._apply(*wanted)
            self._applied = wanted

    def _limit(self) -> None:
        """No more threads of any kind than cores are left."""
        for choice in (self.one, self.many, self.draft):
            if self._watch:
                choice.limit(self._watch.n_free)
