"""Passes that several replies share: what they cost, what each reply pays, and how many rows they should have.

Knows times and counts. What a pass brings per second decides, over all replies (goodput: SmartSpec, arXiv 2406.14066).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.tuning import TUNING


class JointPasses:
    """`costs` are by the rows of all replies, `gain` is what the best way known for one alone makes of plain decode."""

    def __init__(self, costs: PassCosts, gain: float) -> None:
        self.costs, self.gains = costs, {1: gain}  # the latter by how many replies share passes
        self._row_seconds = 0.0  # of a prompt's token
        self._slowdown = 1.0  # times what the table says a plain pass takes now, as rows look at the cells of all
        self._with_drafts = 0.0  # seconds of the last pass but for what it read, if it had drafts
        self._n_mixed = TUNING.blurred_passes  # passes in a row that read prompts beside saying tokens
        self._n_drafting = math.inf  # replies that have drafts where any has: all, as long as none had
        self._n_apart = 0  # passes that were not shared although others waited

    def shares(self, n: int, most: int, n_context: int) -> list[float]:
        """[most + 1] seconds of the tokens of one of `n` replies: of a plain pass its part, and of what drafts add,
        where as many draft as usual, and each as much as this one.
        """
        plain, *wider = accumulate(self.costs.up_to(n + most, n_context)[n - 1 :], max)
        n_drafting, shares = min(max(1.0, self._n_drafting), n), [plain / n]
        for k in range(1, most + 1):
            n_rows = min(most, round(k * n_drafting))
            shares.append(plain / n + (wider[n_rows - 1] - plain) * k / n_rows)
        return shares

    def learn_drafts(self, n_drafted: Sequence[int]) -> None:
        """Takes in how many tokens were drafted for each reply of a pass, where any were."""
        if n := sum(map(bool, n_drafted)):
            before = min(self._n_drafting, len(n_drafted))
            self._n_drafting = before + TUNING.drafting_weight * (n - before)

    def n_worth(self, n: int, n_context: int) -> int:
        """How many of `n` replies that wait have rows of one pass: all of them, or 1 where drafts for one alone bring
        more, but for a look now and then at what sharing brings.
        """
        seconds = self.costs.up_to(n, n_context)
        # n rows never take longer than n passes of one
        gain = max(1.0, n * seconds[0] / max(seconds[-1], 1e-9)) * self.gains.get(n, 1.0)
        if gain >= self.gains[1]:
            return n
        self._n_apart += 1
        return 1 if self._n_apart % TUNING.apart_passes else n

    def n_readable(self, n: int, n_context: int, most: int) -> int:
        """How many rows of prompts, up to `most`, a pass with the tokens of `n` replies may have, so that none takes
        much longer than without.
        """
        plain = self._plain(n, n_context)
        row = self._row_seconds or plain / n
        n_rows = int((TUNING.most_stall - 1) * max(plain, self._with_drafts) / row)
        return max(min(TUNING.least_read, most), min(most, n_rows))

    @property
    def is_blurred(self) -> bool:
        """Should what is said and what is read have passes of their own, so that it is known what each takes?"""
        return self._n_mixed >= TUNING.blurred_passes

    def _plain(self, n: int, n_context: int) -> float:
        return self._slowdown * self.costs.seconds(n, n_context)

    def learn(self, n_drafted: Sequence[int], n_context: int, n_read: int, seconds: float) -> None:
        """A pass had the next tokens of these replies with so many draft tokens, and `n_read` of prompts."""
        self._n_mixed += n_read > 0
        if any(n_drafted):  # what else the pass had is not known by itself
            self._with_drafts = seconds - n_read * self._row_seconds
            return
        self._with_drafts, plain = 0.0, self._plain(len(n_drafted), n_context)
        if n_read:
            self._learn_row(n_read, seconds - plain)
        elif plain:
            change = min(max(seconds / plain, 1 / TUNING.most_read_change), TUNING.most_read_change)
            self._slowdown *= 1 + TUNING.read_weight * (change - 1)

    def learn_read(self, n_rows: int, seconds: float) -> None:
        """A pass had so many rows of prompts, and nothing else."""
        self._n_mixed = 0
        self._learn_row(n_rows, seconds)

    def _learn_row(self, n_rows: int, seconds: float) -> None:
        row = max(seconds, 0.0) / max(n_rows, 1)
        self._row_seconds += (TUNING.read_weight if self._row_seconds else 1.0) * (row - self._row_seconds)
