"""Calibrates drafter confidence to acceptance probability and adapts quickly when the kind of text changes.

Counts only; knows no costs and no tokens.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.core.draft import Adapters
from runtime.speculative.control.tuning import TUNING

EDGES = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97, 0.99, 0.998)  # edges of the confidence bins
N_BINS = len(EDGES) + 1
UNKNOWN = N_BINS  # the bin when no confidence is known
MOST_CHOICES = 16  # of adapters, for which acceptance is kept
ADAPTED = "adapted"  # key of their state
MAX_COUNTED = 1e12  # limit of stored counts; larger ones are invalid


def bin_of(confidence: float) -> int:
    """Return the bin of a confidence."""
    return bisect_right(EDGES, confidence)


class Acceptances:
    """A drafter's acceptance with each choice of LoRA adapters, because it differs as the model's texts do."""

    def __init__(self) -> None:
        self.known = {"": Acceptance()}  # by label; "" is the model alone
        self.current = self.known[""]

    def use(self, adapters: Adapters) -> None:
        """Use the acceptance with these adapters. A new one begins like the model's alone, with half its weight."""
        if (key := label(adapters)) not in self.known:
            self.known[key] = Acceptance()
            self.known[key].restore(self.known[""].state())
            self.known[key].doubt()
            for oldest in [*self.known][1:-MOST_CHOICES]:
                del self.known[oldest]
        self.current = self.known[key]

    def state(self) -> dict[str, Any]:
        """Return the state to store until the next start, as plain data."""
        others = {key: each.state() for key, each in self.known.items() if key}
        return self.known[""].state() | ({ADAPTED: others} if others else {})

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`. Raises ValueError, KeyError or TypeError when it has another form."""
        self.known[""].restore(state)
        for key, each in [*dict(state.get(ADAPTED, {})).items()][:MOST_CHOICES]:
            found = Acceptance()
            found.restore(each)
            self.known[str(key)] = found


def label(adapters: Adapters) -> str:
    """Return a text that stands for adapters and their scales."""
    return " ".join(f"{key}={scale!r}" for key, scale in adapters)


class Acceptance:
    """Calibration of one drafter's confidence to the acceptance probability.

    Slow counts per confidence bin are shifted in logits by an offset that follows the last few tokens (Platt scaling,
    learned online). Each kind of text has its own offset. A token counts as tried only if all draft tokens before it
    were accepted.
    """

    def __init__(self) -> None:
        """Use the confidence as the prior acceptance probability."""
        middles = [(low + high) / 2 for low, high in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True)]
        prior = TUNING.prior_tokens
        self.bins = [[prior, prior * middle] for middle in middles]  # tried, accepted
        # Counts of transitions from one confidence bin to the next: within a draft, and from the previous step's last
        # bin to the first token's; the last row of the latter is for an unknown bin.
        self.moves = [[1.0 if after == before else 0.05 for after in range(N_BINS)] for before in range(N_BINS)]
        usual, weight = bin_of(TUNING.prior_acceptance), TUNING.first_token_weight
        self.starts = [
            [weight * (1.0 if after == usual else 0.05) for after in range(N_BINS)] for _ in range(N_BINS + 1)
        ]
        self.last = UNKNOWN
        self.visits = [0.01] * N_BINS + [1.0]  # recent steps by the last bin before them
        self.n_seen = 0  # tokens compared with the generated text
        self._total = [TUNING.prior_tokens, TUNING.prior_tokens * TUNING.prior_acceptance]
        self.kind, self._offsets = "", {"": 0.0}
        self._shift = 1.0  # exp(-offset)

    @property
    def rate(self) -> float:
        """Acceptance rate of the recently tried tokens."""
        return self._total[1] / self._total[0]

    @property
    def chances(self) -> list[float]:
        """[N_BINS] current acceptance probability by confidence bin."""
        return [self._chance(which) for which in range(N_BINS)]

    def chance(self, confidence: float) -> float:
        """Return the current acceptance probability of a token with this confidence."""
        return self._chance(bin_of(confidence))

    def _chance(self, which: int) -> float:
        tried, accepted = self.bins[which]
        rate = min(max(accepted / tried, 0.001), 0.999)
        return rate / (rate + (1 - rate) * self._shift)

    def set_kind(self, kind: str) -> None:
        """Set the kind of text; a new kind starts with the offset of the previous one."""
        if kind != self.kind:
            self._offsets.setdefault(kind, self._offsets[self.kind])
            self.kind = kind
            self._shift_by(self._offsets[kind])

    def rest(self, n_steps: int = 1) -> None:
        """Record steps in which the drafter proposed nothing."""
        self._visit()
        self.last = UNKNOWN
        if n_steps > 1:
            left = TUNING.recent_decay ** (n_steps - 1)
            self.visits = [left * count for count in self.visits]
            self.visits[UNKNOWN] += (1 - left) / (1 - TUNING.recent_decay)

    def _visit(self) -> None:
        self.visits = [TUNING.recent_decay * count for count in self.visits]
        self.visits[self.last] += 1

    def observe(self, confidences: Sequence[float], n_accepted: int, n_known: int) -> None:
        """Learn from draft tokens with these confidences: the first `n_known` can be compared with the generated text,
        the first `n_accepted` of them match it.
        """
        self._visit()
        self._total = [TUNING.recent_decay * count for count in self._total]
        offset = TUNING.offset_decay * self._offsets[self.kind]
        for depth, confidence in enumerate(confidences):
            which = bin_of(confidence)
            seen = (self.moves if depth else self.starts)[self.last]
            seen[which] += 1
            if seen[which] > TUNING.most_tokens:
                seen[:] = [count / 2 for count in seen]
            self.last = which
            if depth <= n_accepted and depth < n_known:
                hit = float(depth < n_accepted)
                offset += TUNING.offset_step * (hit - self._chance(which))
                self._count(which, hit)
        self._shift_by(offset)

    def _count(self, which: int, hit: float) -> None:
        self.n_seen += 1
        cell, total = self.bins[which], self._total
        if cell[0] >= TUNING.most_tokens:
            cell[:] = [cell[0] / 2, cell[1] / 2]
        cell[0], cell[1] = cell[0] + 1, cell[1] + hit
        total[0], total[1] = total[0] + 1, total[1] + hit

    def _shift_by(self, offset: float) -> None:
        """Set the offset in logits of the current kind of text."""
        self._offsets[self.kind], self._shift = offset, math.exp(-offset)

    def doubt(self) -> None:
        """Halve the weight of the counts, so that a probe after a long pause can change the estimate."""
        for cell in (self._total, *self.bins):
            cell[:] = [(cell[0] + TUNING.prior_tokens) / 2, (cell[1] + TUNING.prior_tokens * cell[1] / cell[0]) / 2]
        self._shift_by(self._offsets[self.kind] / 2)

    def state(self) -> dict[str, Any]:
        """Return the state to store until the next start, as plain data."""
        counts = {"bins": self.bins, "moves": self.moves, "starts": self.starts, "total": self._total}
        return counts | {"kinds": self._offsets}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`; large counts are scaled down to `remembered_tokens`.

        Raises ValueError, KeyError or TypeError when it has another form.
        """
        bins, moves, starts, total = (np.array(state[key], dtype=float) for key in ("bins", "moves", "starts", "total"))
        if (bins.shape, moves.shape, starts.shape, total.shape) != (
            (N_BINS, 2),
            (N_BINS, N_BINS),
            (N_BINS + 1, N_BINS),
            (2,),
        ):
            raise ValueError("counts of another form")
        if np.concatenate([counts.ravel() for counts in (bins, moves, starts, total)]).max() > MAX_COUNTED:
            raise ValueError("counts that are too large")
        tried, accepted = np.vstack([bins, total]).T
        if (
            not (np.vstack([moves, starts]) > 0).all()
            or not ((tried > 0) & (accepted >= 0) & (accepted <= tried)).all()
        ):
            raise ValueError("counts that are impossible")
        offsets = {str(kind): float(offset) for kind, offset in dict(state["kinds"]).items()}
        if not np.isfinite([*offsets.values()]).all():
            raise ValueError("offsets that are not finite")
        self.bins, self.moves, self.starts, self._total = bins.tolist(), moves.tolist(), starts.tolist(), total.tolist()
        most = TUNING.most_offset
        self._offsets |= {kind: min(max(offset, -most), most) for kind, offset in offsets.items()}
        self._shift_by(self._offsets[self.kind])
        for cell in (self._total, *self.bins):
            share = min(1.0, TUNING.remembered_tokens / cell[0])
            cell[:] = [share * count for count in cell]
