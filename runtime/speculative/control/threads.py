"""Which number of threads is fastest, watched while decoding: another busy process can make two threads three times
slower than one.

Knows times and numbers; the pass itself is made by others. A trial is an ordinary pass with another number of threads,
so it costs only the difference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median

FIRST_TRIAL, LAST_TRIAL = 16, 1024  # passes between two trials
TRIES = 3  # passes of a trial that goes well
BETTER = 0.9  # of the present time, below which another number is taken
DRIFTED = 1.3  # times what a pass took at the last trial: time for the next at once


class ThreadChoice:
    """One kind of passes: `n` threads are used, unless a trial is on."""

    def __init__(self, options: Sequence[int], n: int) -> None:
        self.options, self.n = sorted({*options, n}), n
        self.tried = n  # the number that the next pass is made with
        self._recent: deque[float] = deque(maxlen=5)  # times with n, over the expected
        self._trial: list[float] = []
        self._waited, self._wait = 0, FIRST_TRIAL
        self._before: dict[int, float] = {}  # width -> seconds expected after the last trial
        self._next = 0

    def observe(self, width: int, seconds: float, expected: float) -> float | None:
        """Takes in a pass made with `tried`.

        Returns by how much passes are expected to take longer or shorter from now on, when the number was changed; 1
        when it was not; None while a trial is on, whose times say nothing about `n`.
        """
        if self.tried != self.n:
            return self._judge(seconds / expected)
        self._recent.append(seconds / expected)
        self._waited += 1
        has_drifted = expected > DRIFTED * self._before.setdefault(width, expected)
        if (
            len(self.options) > 1
            and len(self._recent) == self._recent.maxlen
            and (has_drifted or self._waited >= self._wait)
        ):
            self._begin_trial()
        return 1.0

    def _begin_trial(self) -> None:
        """Begins a trial of another number; the others take turns."""
        others = [option for option in self.options if option != self.n]
        self.tried, self._next = others[self._next % len(others)], self._next + 1
        self._waited, self._trial = 0, []
        self._before.clear()

    def _judge(self, relative: float) -> float | None:
        """Goes on while the trial goes well; the number is taken when it went well to the end."""
        self._trial.append(relative)
        now = median(self._recent)
        if median(self._trial) >= BETTER * now:
            self.tried, self._wait = self.n, min(2 * self._wait, LAST_TRIAL)
            return None
        if len(self._trial) < TRIES:
            return None
        self.n, self._wait = self.tried, FIRST_TRIAL
        self._recent.clear()
        return median(self._trial)


class Threads:
    """Threads for the target's passes of one row and of several, and the draft model's; applied where they changed."""

    def __init__(
        self, options: Sequence[int], one: int, many: int, draft: int, apply: Callable[[int, int, int], None]
    ) -> None:
        self.one, self.many, self.draft = (ThreadChoice(options, n) for n in (one, many, draft))
        self._apply, self._applied = apply, (0, 0, 0)

    def of(self, width: int) -> ThreadChoice:
        """The choice for the target's passes of that many rows."""
        return self.one if width == 1 else self.many

    def set(self) -> None:
        """Applies the numbers of threads that the next pass is to be made with."""
        wanted = self.one.tried, self.many.tried, self.draft.tried
        if wanted != self._applied:
            self._apply(*wanted)
            self._applied = wanted
