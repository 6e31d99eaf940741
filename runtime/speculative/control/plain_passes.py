"""Plain passes amid drafts: when they are made, so that it is known what plain decode costs, and which of them tell.

Knows counts of steps alone.
"""

from __future__ import annotations

# Steps, at least and at most, after which plain passes are made
LEAST_EVERY, MOST_EVERY = 24, 256
# Steps until the first, after which pauses double: what plain decode was found to cost at load may be wrong by much
FIRST = 16
RUN = 4  # of them
# Of decode time that they may cost: the less drafts gain, the more often they are made, and the more depends on them
SHARE = 0.002
# Plain passes in a row of which the last is one as in plain decode: drafts leave other things in the processor's caches
STEADY = 2


class PlainPasses:
    """Steps since the last run of them, and how long the present one is."""

    def __init__(self) -> None:
        self._since_run, self._n_in_row = 0, 0
        self.is_due = False  # is this step to be plain?

    def begin(self, n_steps: int, gain: float, may_be: bool) -> None:
        """A step begins after `n_steps`; drafts make `gain` times plain decode. `may_be`: can it be plain for that?"""
        self.is_due = may_be and self._since_run >= self._every(n_steps, gain)

    @staticmethod
    def _every(n_steps: int, gain: float) -> float:
        """Steps between two runs."""
        wanted = max(LEAST_EVERY, RUN / SHARE * (gain - 1))
        return min(wanted, MOST_EVERY, max(FIRST, n_steps // 2))

    def note(self, is_plain: bool) -> None:
        """A step has ended."""
        self._n_in_row = self._n_in_row + 1 if is_plain else 0
        self._since_run = 0 if self._n_in_row >= RUN else self._since_run + 1

    def note_row(self, n: int) -> None:
        """So many plain steps have ended."""
        self._n_in_row, self._since_run = self._n_in_row + n, 0

    @property
    def is_steady(self) -> bool:
        """Was the last step as it would be in plain decode?"""
        return self._n_in_row >= STEADY
