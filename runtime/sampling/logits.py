"""From a row of logits to the distribution of the next token: penalties, temperature, top-k, top-p, min-p.

Pure functions that are exact and read as few values as possible; know no context and no seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Distribution, Logits, Tokens, certain
from runtime.sampling.settings import Sampling

SET = 64  # approximate size of a set of values of which only the largest is read first
FEW = 64  # values up to which plain Python is faster than NumPy
MANY = 512  # tokens from which on counting them, by id or by likelihood, is faster than one by one
ROUNDING = 1e-3  # safety margin for bounds on exponents
ONES = np.ones(8192, dtype=np.float32)  # values that are summed at once
LEVEL_BITS, N_LEVELS = 47, 2047  # 32 levels of probability for each power of two; the last one has all below


class Row:
    """A row of logits [n_vocab] in n_vocab // SET sets with known maxima [n_sets]: set i has i, i + n_sets, ..."""

    def __init__(self, logits: Logits) -> None:
        self.logits, self.n_sets = logits, max(1, len(logits) // SET)
        depth, n_rest = divmod(len(logits), self.n_sets)
        self.maxima: NDArray[np.float32] = np.maximum.reduce(logits[: depth * self.n_sets].reshape(depth, self.n_sets))
        if n_rest:
            np.maximum(self.maxima[:n_rest], logits[-n_rest:], out=self.maxima[:n_rest])
        self.best_set = int(self.maxima.argmax())
        self.best = self.maxima[self.best_set]

    def likeliest(self) -> int:
        """Return a token with the largest logit."""
        return self.best_set + self.n_sets * int(self.logits[self.best_set :: self.n_sets].argmax())

    def peak(self) -> float:
        """Return the approximate probability of the most likely token at temperature 1: only each set's maximum is
        counted.
        """
        return 1 / float(np.add.reduce(np.exp(self.maxima - self.best)))

    def lone(self, lead: float) -> int | None:
        """Return the token that leads all others by more than `lead`, or None."""
        least = self.best - lead
        if (
            np.count_nonzero(self.maxima >= least) > 1
            or np.count_nonzero(self.logits[self.best_set :: self.n_sets] >= least) > 1
        ):
            return None
        return self.likeliest()

    def top_ids(self, k: int) -> NDArray[np.int64]:
        """Return the ids [k] of the k largest logits, ascending."""
        near = self._near(k)
        if len(near) > k:
            near = near[np.argpartition(self.logits[near], -k)[-k:]]
            near.sort()
        return near

    def best_ids(self, k: int) -> NDArray[np.int64]:
        """Return the ids [k] of the k largest logits, from the largest down."""
        near = self._near(k)
        return near[(-self.logits[near]).argsort()[:k]]

    def _near(self, k: int) -> NDArray[np.int64]:
        """Return the ids of k or more logits, ascending, among which are the k largest.

        The k-th largest of the sets' maxima has k values at or above it, so no smaller value needs to be read.
        """
        least = np.partition(self.maxima if self.n_sets >= k else self.logits, -k)[-k]
        near: NDArray[np.int64] = (self.logits >= least).nonzero()[0]
        return near

    def spread(self) -> float:
        """Return the standard deviation of the logits that are not minus infinity.

        Summed in pieces, because OpenBLAS divides more than 10,000 values among threads, whose number changes the
        rounding.
        """
        n, total, of_squares = len(self.logits), 0.0, 0.0
        with np.errstate(over="ignore"):  # a very negative bias
            for begin in range(0, n, len(ONES)):
                piece = self.logits[begin : begin + len(ONES)]
                total += float(piece.dot(ONES[: len(piece)]))
                of_squares += float(piece.dot(piece))
        if total == -math.inf:
            return float(self.logits[self.logits > -np.inf].std(dtype=np.float64))
        return math.sqrt(max(0.0, of_squares / n - (total / n) ** 2))


def softmax(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """Return probabilities [n] in float64."""
    x = logits.astype(np.float64)
    x -= x.max()
    x /= temperature
    np.exp(x, out=x)
    x /= x.sum()
    return x


def nucleus(probs: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Return the indices, ascending, of the smallest set of most likely tokens whose probabilities reach `top_p`
    (Holtzman et al., arXiv 1904.09751).

    Only tokens about as likely as the least likely one of them are sorted: those whose probability has the same
    exponent and the same first bits.
    """
    near = np.flatnonzero(probs >= probs.max() * 1e-4)
    if (found := probs[near]).sum() < top_p:
        near, found = np.arange(len(probs)), probs
    before, sure = 0.0, near[:0]
    if len(near) > MANY:
        levels = found.view(np.int64) >> LEVEL_BITS
        levels = np.minimum(levels.max() - levels, N_LEVELS)  # 0: the likeliest
        sums = np.bincount(levels, weights=found).cumsum()
        if level := min(int(sums.searchsorted(top_p)), len(sums) - 1):
            before, sure = float(sums[level - 1]), near[levels < level]
        near = near[levels == level]
    near = near[np.argsort(-probs[near], kind="stable")]
    kept = np.concatenate([sure, near[: int((before + probs[near].cumsum()).searchsorted(top_p)) + 1]])
    kept.sort()
    return kept


def lead(sampling: Sampling, n: int) -> float:
    """Return the lead over the second of `n` tokens from which the most likely one is certain to be the only one
    left. It is in logits; temperature above 0.
    """
    by_min_p = -math.log(sampling.min_p) if sampling.min_p else math.inf
    n_others = max(1, (sampling.top_k if sampling.top_k > 0 else n) - 1)
    by_top_p = math.log(n_others * sampling.top_p / (1 - sampling.top_p)) if sampling.top_p < 1 else math.inf
    return sampling.temperature * (max(0.0, min(by_min_p, by_top_p)) + ROUNDING)


def distribution(row: Row, sampling: Sampling) -> Distribution:
    """Return the distribution of the next token, from the temperature step on; temperature above 0."""
    token = row.lone(lead(sampling, len(row.logits)))
    return uncertain(row, sampling) if token is None else certain(token)


def uncertain(row: Row, sampling: Sampling) -> Distribution:
    """Return the distribution of a row in which no token is certain."""
    n = len(row.logits)
    ids = row.top_ids(min(sampling.top_k, n)) if sampling.top_k > 0 else np.arange(n)
    if len(ids) <= FEW:
        few, weights = cut(row.logits[ids].tolist(), sampling)
        return Distribution(ids[few], np.array(weights) / sum(weights))
    probs = softmax(row.logits[ids], sampling.temperature)
    kept = nucleus(probs, sampling.top_p) if sampling.top_p < 1 else np.arange(len(ids))
    near = probs[kept]
    kept = kept[near >= max(sampling.min_p * near.max(), 1e-300)]
    return Distribution(ids[kept], probs[kept] / probs[kept].sum())


def cut(logits: Sequence[float], sampling: Sampling) -> tuple[list[int], list[float]]:
    """Return the indices of a few logits that temperature, top-p and min-p keep, ascending, and their weights.

    In Python it takes a third of the time of NumPy's functions, whose code a pass leaves in no cache.
    """
    best, temperature = max(logits), sampling.temperature
    weights = [math.exp((logit - best) / temperature) for logit in logits]
    most, least, mass = sampling.top_p * sum(weights), max(sampling.min_p, 1e-300), 0.0
    kept = list[int]()
    for i in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        if weights[i] < least or (mass >= most and sampling.top_p < 1):
            break
        mass += weights[i]
        kept.append(i)
    kept.sort()
    return kept, [weights[i] for i in kept]


def penalise(logits: Logits, recent: Tokens, sampling: Sampling) -> None:
    """Apply the three penalties to `logits` [n_vocab] in place (repetition: Keskar et al., arXiv 1909.05858)."""
    if len(recent) and recent.max() >= len(logits):
        recent = recent[recent < len(logits)]
    values, factor = logits[recent], sampling.repetition_penalty  # one that came twice is set twice to the same value
    values = (np.minimum if factor > 1 else np.maximum)(values / factor, values * factor)
    of_counts = sampling.frequency_penalty * counts(recent) if sampling.frequency_penalty else 0.0
    logits[recent] = values - of_counts - sampling.presence_penalty


def counts(tokens: Tokens) -> NDArray[np.int64]:
    """Return how often each of the `tokens` [n] occurs among them: [n]."""
    if len(tokens) > MANY:
        return np.bincount(tokens)[tokens]
    ordered = np.sort(tokens)
    return ordered.searchsorted(tokens, "right") - ordered.searchsorted(tokens)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log probability, and the most likely tokens in its place.

    The probabilities are those of the model itself, or those after all sampling settings. Tokens that these exclude are
    not among the most likely.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (token id, log probability), most likely first


Report = Callable[[Logits, Sequence[int]], tuple[TokenLogprobs, ...]]  # of tokens [m] and their rows [m, n_vocab]


def logprobs(rows: Logits, tokens: Sequence[int], n: int) -> tuple[TokenLogprobs, ...]:
    """Return log probabilities of `tokens` [m], each with the `n` most likely of its row of `rows` [m, n_vocab]."""
    found = []
    for row, token in zip(rows, tokens, strict=True):
        x = row.astype(np.float64)
        x -= x.max()
        x -= np.log(np.exp(x).sum())
        near = Row(row).top_ids(min(n, len(row))) if n else np.zeros(0, dtype=np.int64)
        near = near[np.argsort(-x[near], kind="stable")]
        found.append(TokenLogprobs(token, float(x[token]), tuple(zip(near.tolist(), x[near].tolist(), strict=True))))
    return tuple(found)
