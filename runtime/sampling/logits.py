"""Rows of logits: the largest of them, their softmax, the nucleus.

Pure functions that are exact and look at as little as they can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Logits

SET = 64  # about so many values of which only the largest is looked at first
MANY = 4  # times as many sets as values are wanted, from which on looking at sets first saves time


class Row:
    """A row of logits [n_vocab] in n_vocab // SET sets, of which the largest values [n_sets] are known: set i has i, i
    + n_sets, ...
    """

    def __init__(self, logits: Logits) -> None:
        self.logits, self.n_sets = logits, max(1, len(logits) // SET)
        depth, n_rest = divmod(len(logits), self.n_sets)
        self.maxima: NDArray[np.float32] = np.maximum.reduce(logits[: depth * self.n_sets].reshape(depth, self.n_sets))
        if n_rest:
            np.maximum(self.maxima[:n_rest], logits[-n_rest:], out=self.maxima[:n_rest])
        self.best_set = int(self.maxima.argmax())
        self.best = self.maxima[self.best_set]

    def likeliest(self) -> int:
        """A token whose logit is the largest."""
        return self.best_set + self.n_sets * int(self.logits[self.best_set :: self.n_sets].argmax())

    def peak(self) -> float:
        """About the probability of the likeliest token, at temperature 1: of each set only its largest logit is
        counted.
        """
        return 1 / float(np.add.reduce(np.exp(self.maxima - self.best)))

    def lone(self, lead: float) -> int | None:
        """The token that is ahead of all others by more than `lead`, if there is one."""
        least = self.best - lead
        if (
            np.count_nonzero(self.maxima >= least) > 1
            or np.count_nonzero(self.logits[self.best_set :: self.n_sets] >= least) > 1
        ):
            return None
        return self.likeliest()

    def top_ids(self, k: int) -> NDArray[np.int64]:
        """The ids [k] of the k largest logits, ascending.

        The k-th largest of the sets' maxima has k values at or above it, so nothing below that needs to be looked at.
        """
        logits = self.logits
        near = np.flatnonzero(logits >= np.partition(self.maxima if self.n_sets >= MANY * k else logits, -k)[-k])
        if len(near) > k:
            near = near[np.argpartition(logits[near], -k)[-k:]]
            near.sort()
        return near


def softmax(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """Probabilities [n] in float64."""
    x = logits.astype(np.float64)
    x -= x.max()
    x /= temperature
    np.exp(x, out=x)
    x /= x.sum()
    return x


def nucleus(probs: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, likeliest first, of the smallest set of likeliest tokens whose probabilities reach `top_p` (Holtzman et
    al., arXiv 1904.09751).
    """
    near = np.flatnonzero(probs >= probs.max() * 1e-4)
    if probs[near].sum() < top_p:
        near = np.arange(len(probs))
    order = near[np.argsort(-probs[near], kind="stable")]
    return order[: int(probs[order].cumsum().searchsorted(top_p)) + 1]


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log probability and the likeliest tokens in its place: by the model itself, or after all sampling
    settings, where tokens that those leave out are not among the likeliest.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (token id, log probability), likeliest first


Report = Callable[[Logits, Sequence[int]], tuple[TokenLogprobs, ...]]  # of tokens [m] and their rows [m, n_vocab]


def logprobs(rows: Logits, tokens: Sequence[int], n: int) -> tuple[TokenLogprobs, ...]:
    """Log probabilities of `tokens` [m], each with the `n` likeliest of the row [m, n_vocab] it was chosen from."""
    found = []
    for row, token in zip(rows, tokens, strict=True):
        x = row.astype(np.float64)
        x -= x.max()
        x -= np.log(np.exp(x).sum())
        near = Row(row).top_ids(min(n, len(row))) if n else np.zeros(0, dtype=np.int64)
        near = near[np.argsort(-x[near], kind="stable")]
        found.append(TokenLogprobs(token, float(x[token]), tuple(zip(near.tolist(), x[near].tolist(), strict=True))))
    return tuple(found)
