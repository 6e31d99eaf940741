"""The tokens that are left of a row, and what each sampler that leaves tokens out does to them.

Each is defined as in llama.cpp: top-n-sigma (Tang et al., arXiv 2411.07641), locally typical (Meister et al., arXiv
2202.00666), XTC (p-e-w, text-generation-webui, pull request 6335), dynamic temperature (kalomaze, KoboldCpp), and
mirostat 2 (Basu et al., arXiv 2007.14966). Knows logits; knows no context and no seed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Distribution
from runtime.sampling.logits import Row, nucleus

LEAST = 1e-300  # a smaller share is none
MANY = 1024  # tokens from which on they are not sorted without need

Chosen = NDArray[np.bool_] | NDArray[np.int64] | slice


class Candidates:
    """The tokens that are left of a row and their logits, by ids or, once few are left, from the likeliest one down."""

    def __init__(self, row: Row) -> None:
        self.row: Row | None = row  # until a token was left out, or a logit changed
        self.ids: NDArray[np.int64] | None = None  # [n]; None: all tokens
        self.logits: NDArray[np.floating] = row.logits  # [n]
        self.least = -math.inf  # tokens with a smaller logit are left out as soon as few are read
        self.is_sorted = self._is_permuted = False  # from the likeliest down; whether `ids` may not ascend
        self._weights: NDArray[np.float64] | None = None

    @property
    def weights(self) -> NDArray[np.float64]:
        """Values [n] proportional to the probabilities; tokens without any are left out."""
        if self._weights is None:
            self.cut()
            x = self.logits.astype(np.float64)
            x -= x[0] if self.is_sorted else x.max()
            self._weights = np.exp(x, out=x)
            if (x[-1] if self.is_sorted else x.min()) < LEAST:
                self.keep(x >= LEAST)
        return self._weights

    @property
    def probs(self) -> NDArray[np.float64]:
        """The probabilities [n]."""
        weights = self.weights
        shares: NDArray[np.float64] = weights / np.add.reduce(weights)
        return shares

    def keep(self, chosen: Chosen) -> None:
        """Leave out all but the chosen ones: a mask [n], indices or a slice."""
        if isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_:
            chosen = np.flatnonzero(chosen)
        if self.ids is not None:
            self.ids = self.ids[chosen]
        else:
            self.ids = np.arange(len(self.logits))[chosen] if isinstance(chosen, slice) else chosen.astype(np.int64)
        self.logits, self.row = self.logits[chosen], None
        if self._weights is not None:
            self._weights = self._weights[chosen]

    def cut(self) -> None:
        """Leave out the tokens with a logit below `least`, which waits until others leave few."""
        least, self.least = self.least, -math.inf
        if least > -math.inf and not (self.is_sorted and self.logits[-1] >= least):
            self.keep(self.logits >= least)

    def sort(self) -> None:
        """Sort what is left from the likeliest down."""
        if not self.is_sorted:
            self.keep_sorted((-self.logits).argsort())

    def keep_sorted(self, chosen: NDArray[np.int64]) -> None:
        """Leave out all but those at the indices `chosen` [n], which go from the likeliest down."""
        self.keep(chosen)
        self.is_sorted = self._is_permuted = True

    @property
    def surprise_of_best(self) -> float:
        """The negative natural logarithm of the largest probability."""
        self.cut()
        if len(self.logits) <= MANY:
            return -math.log(self.probs.max())
        x = self.logits.astype(np.float32)  # the sum is accurate enough, and needs half the memory
        x -= x.max()
        return math.log(np.add.reduce(np.exp(x, out=x)))

    def change(self, logits: NDArray[np.floating]) -> None:
        """Set the logits [n], in the same order of likelihood where they are sorted."""
        self.logits, self.row, self._weights = logits, None, None

    def distribution(self) -> Distribution:
        """Return the distribution over what is left."""
        probs, ids = self.probs, self.ids
        if ids is None:
            return Distribution(np.arange(len(probs)), probs)
        if not self._is_permuted:
            return Distribution(ids, probs)
        order = ids.argsort()
        return Distribution(ids[order], probs[order])


def top_n_sigma(left: Candidates, n: float) -> None:
    """Keep the logits within `n` standard deviations of the largest one."""
    row = left.row or Row(left.logits)
    left.least = max(left.least, float(row.best - n * row.spread()))


def top_k(left: Candidates, k: int) -> None:
    """Keep the `k` largest logits."""
    n = len(left.logits)
    if left.is_sorted:
        left.keep(slice(k))
    elif min(k, n) <= MANY:
        left.keep_sorted((left.row or Row(left.logits)).best_ids(min(k, n)))
    elif k < n:
        left.keep((left.row or Row(left.logits)).top_ids(k))


def typical(left: Candidates, p: float) -> None:
    """Keep the tokens whose surprise is nearest to the expected one, until their probabilities exceed `p`."""
    weights = left.weights
    total, logs = np.add.reduce(weights), np.log(weights)
    order = np.abs(logs - np.add.reduce(weights * logs) / total).argsort()
    chosen = order[: int(weights[order].cumsum().searchsorted(p * total, side="right")) + 1]
    chosen.sort()
    left.keep(chosen)


def top_p(left: Candidates, p: float) -> None:
    """Keep the likeliest tokens that together have this probability (Holtzman et al., arXiv 1904.09751)."""
    if left.is_sorted:
        sums = left.weights.cumsum()
        left.keep(slice(int(sums.searchsorted(p * sums[-1])) + 1))
    else:
        left.keep(nucleus(left.probs, p))


def min_p(left: Candidates, p: float) -> None:
    """Keep the tokens with at least this share of the largest probability."""
    weights = left.weights
    keep_above(left, weights, p * (weights[0] if left.is_sorted else weights.max()))


def keep_above(left: Candidates, values: NDArray[np.float64], least: float) -> None:
    """Keep the tokens with at least this value, which grows with the probability."""
    above = values >= least
    left.keep(slice(np.count_nonzero(above)) if left.is_sorted else above)


def xtc(left: Candidates, threshold: float) -> None:
    """Leave out all but the least likely of the tokens that reach the threshold."""
    if len(left.logits) > MANY:
        above = left.probs >= threshold
        if np.count_nonzero(above) > 1:
            least = int(np.where(above, left.weights, np.inf).argmin())
            above[least] = False
            left.keep(~above)
        return
    left.sort()
    weights = left.weights
    left.keep(slice(max(0, np.count_nonzero(weights >= threshold * np.add.reduce(weights)) - 1), None))


def dynamic(weights: NDArray[np.float64], least: float, most: float, exponent: float) -> float:
    """Return the temperature between two for weights [n], by their share of the largest possible entropy."""
    if len(weights) < 2:
        return most
    total = float(np.add.reduce(weights))
    entropy = math.log(total) - float(np.add.reduce(weights * np.log(weights))) / total
    return float(least + (most - least) * max(0.0, entropy / math.log(len(weights))) ** exponent)


def heat(left: Candidates, temperature: float) -> None:
    """Divide the logits by a temperature; 0 keeps the largest one."""
    left.cut()
    if temperature > 0:
        kind = np.float64 if len(left.logits) <= MANY else np.float32
        left.change(left.logits / kind(temperature))
    else:
        left.keep(np.array([int(left.logits.argmax())]))


def mirostat(left: Candidates, limit: float) -> None:
    """Keep the tokens whose surprise is within a limit, in bits, or the likeliest one."""
    best = float(left.logits.max())
    rest = math.log(2) * max(0.0, limit) - left.surprise_of_best
    left.keep(left.logits >= best - max(0.0, rest))
