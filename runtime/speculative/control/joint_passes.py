"""Cost model of passes that several sequences share: cost, share of each sequence, and prompt rows that fit in.

Knows times and counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.tuning import TUNING


class JointPasses:
    """Cost model of shared passes; `costs` is by the rows of all sequences."""

    def __init__(self, costs: PassCosts) -> None:
        self.costs = costs
        self._row_seconds = 0.0  # seconds per prompt token
        self._slowdown = 1.0  # factor on the table's plain pass now, because rows attend over the cells of all
        self._with_drafts = 0.0  # seconds of the last pass without its prompt rows, if it had drafts
        self._n_mixed = TUNING.blurred_passes  # passes that decoded and read prompts since one only read prompts
        self._n_drafting = math.inf  # average number of sequences with drafts, in passes that have any; inf: none yet

    def shares(self, n: int, most: int, n_context: int) -> list[float]:
        """Return [most + 1] the seconds that one of `n` sequences pays for a pass, by number of its draft tokens.

        It pays its part of a plain pass and of the extra time of drafts, assuming that the usual number of sequences
        draft and that each drafts as many tokens as this one.
        """
        plain, *wider = accumulate(self.costs.up_to(n + most, n_context)[n - 1 :], max)
        n_drafting, shares = min(max(1.0, self._n_drafting), n), [plain / n]
        for k in range(1, most + 1):
            n_rows = min(most, round(k * n_drafting))
            shares.append(plain / n + (wider[n_rows - 1] - plain) * k / n_rows)
        return shares

    def learn_drafts(self, n_drafted: Sequence[int]) -> None:
        """Record the number of draft tokens of each sequence of a pass, if it had any."""
        if n := sum(map(bool, n_drafted)):
            before = min(self._n_drafting, len(n_drafted))
            self._n_drafting = before + TUNING.drafting_weight * (n - before)

    def n_readable(self, n: int, n_context: int, most: int) -> int:
        """Return the number of prompt rows, up to `most`, that a pass decoding `n` sequences may have without taking
        much longer than without them (`most_stall`).
        """
        plain = self._plain(n, n_context)
        row = self._row_seconds or plain / n
        n_rows = int((TUNING.most_stall - 1) * max(plain, self._with_drafts) / row)
        return max(min(TUNING.least_read, most), min(most, n_rows))

    @property
    def is_blurred(self) -> bool:
        """Whether decoding and prefill should have separate passes next, so that each can be timed."""
        return self._n_mixed >= TUNING.blurred_passes

    def _plain(self, n: int, n_context: int) -> float:
        return self._slowdown * self.costs.seconds(n, n_context)

    def learn(self, n_drafted: Sequence[int], n_context: int, n_read: int, seconds: float) -> None:
        """Learn from a pass that decoded sequences with `n_drafted` draft tokens and read `n_read` prompt tokens."""
        self._n_mixed += n_read > 0
        if any(n_drafted):  # its plain part cannot be timed separately
            self._with_drafts = seconds - n_read * self._row_seconds
            return
        self._with_drafts, plain = 0.0, self._plain(len(n_drafted), n_context)
        if n_read:
            self._learn_row(n_read, seconds - plain)
        elif plain:
            change = min(max(seconds / plain, 1 / TUNING.most_read_change), TUNING.most_read_change)
            self._slowdown *= 1 + TUNING.read_weight * (change - 1)

    def learn_read(self, n_rows: int, seconds: float) -> None:
        """Learn from a pass that only read `n_rows` prompt tokens."""
        self._n_mixed = 0
        self._learn_row(n_rows, seconds)

    def _learn_row(self, n_rows: int, seconds: float) -> None:
        row = max(seconds, 0.0) / max(n_rows, 1)
        self._row_seconds += (TUNING.read_weight if self._row_seconds else 1.0) * (row - self._row_seconds)
