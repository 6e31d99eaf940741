"""From a row of logits to a choice: the sampling settings, the pipeline, and the noise that a seed stands for.

The pipeline's order is temperature, top-k, top-p, min-p. One Sampler serves the target and the drafters of a reply. Knows nothing about
drafts' acceptance (see verify.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.draft import Distribution, Logits, Pick
from runtime.errors import SettingsError

BLOCK = 64  # values of which only the largest is looked at first
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. Temperature 0 takes the likeliest token; a seed makes the text reproducible with any drafter."""

    temperature: float = 0.8
    top_k: int = 40  # 0 = off
    top_p: float = 0.95  # 1 = off
    min_p: float = 0.05  # 0 = off
    seed: int | None = None

    def __post_init__(self) -> None:
        """Raises SettingsError naming the field."""
        check("temperature", self.temperature, 0 <= self.temperature <= 100, "from 0 to 100")
        check("top_k", self.top_k, self.top_k >= 0, "0 (off) or more")
        check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1 (off)")
        check("min_p", self.min_p, 0 <= self.min_p < 1, "from 0 (off) to below 1")
        check("seed", self.seed, self.seed is None or 0 <= self.seed <= MASK, "from 0 to 2^64 - 1")


def check(field: str, value: float | None, good: bool, wanted: str) -> None:
    """Raises SettingsError unless `good` (a comparison with NaN is not)."""
    if not good:
        raise SettingsError(f"{field} is {value}: it must be {wanted}.")


def mix(x: Any) -> Any:
    """SplitMix64's finaliser on a Python int or, wrapping, on a uint64 array (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor
        x = x & MASK if isinstance(x, int) else x
    return x ^ (x >> 31)


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gumbel noise [n] for tokens `ids` [n]: a function of (seed, position, id) alone, so neither order nor batch width matters."""
    key = np.uint64(mix(mix(seed + 0x9E3779B97F4A7C15 & MASK) + position & MASK))
    bits = mix(mix(ids.astype(np.uint64) + key))
    uniform = ((bits >> 11).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def block_maxima(logits: Logits) -> NDArray[np.float32]:
    """The largest of each of len(logits) // BLOCK disjoint sets of BLOCK logits; a few at the end are in none."""
    n = len(logits) // BLOCK
    return logits[: n * BLOCK].reshape(BLOCK, n).max(axis=0) if n else logits


def top_ids(logits: Logits, k: int) -> NDArray[np.int64]:
    """The ids [k] of the k largest logits, ascending.

    The k-th largest of the blocks' maxima has k values at or above it, so nothing below it needs to be looked at.
    """
    maxima = block_maxima(logits)
    near = np.arange(len(logits)) if k > len(maxima) else np.flatnonzero(logits >= np.partition(maxima, -k)[-k])
    if len(near) > k:
        near = near[np.argpartition(logits[near], -k)[-k:]]
        near.sort()
    return near


def peak(logits: Logits, token: int) -> float:
    """About the probability of the likeliest token, at temperature 1: of each block only its largest logit is counted."""
    return min(1.0, 1 / float(np.exp(block_maxima(logits) - logits[token]).sum()))


def softmax(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """Probabilities [n] in float64."""
    x = logits.astype(np.float64)
    x -= x.max()
    x /= temperature
    np.exp(x, out=x)
    x /= x.sum()
    return x


def nucleus(probs: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, ascending, of the smallest set of likeliest tokens whose probabilities reach `top_p` (Holtzman et al., arXiv 1904.09751)."""
    near = np.flatnonzero(probs >= probs.max() * 1e-4)
    if probs[near].sum() < top_p:
        near = np.arange(len(probs))
    order = near[np.argsort(-probs[near], kind="stable")]
    kept = order[: int(probs[order].cumsum().searchsorted(top_p)) + 1]
    kept.sort()
    return kept


def distribution(logits: Logits, sampling: Sampling) -> Distribution:
    """What the next token is drawn from, after the whole pipeline; logits [n_vocab], temperature above 0."""
    ids = top_ids(logits, min(sampling.top_k, len(logits))) if sampling.top_k else np.arange(len(logits))
    probs = softmax(logits[ids], sampling.temperature)
    if sampling.top_p < 1:
        kept = nucleus(probs, sampling.top_p)
        ids, probs = ids[kept], probs[kept]
    kept = probs >= max(sampling.min_p * probs.max(), 1e-300)
    ids, probs = ids[kept], probs[kept]
    return Distribution(ids, probs / probs.sum())


class Sampler:
    """One reply's choices. `position` counts the reply's tokens from 0."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self.is_greedy = sampling.temperature == 0
        self.is_coupled = self.is_greedy or sampling.seed is not None
        self.rng = np.random.default_rng(sampling.seed)

    def choose(self, logits: Logits, position: int) -> int:
        """The coupled rule's token: argmax of log p(x) + Gumbel noise, or of the logits when greedy."""
        return int(logits.argmax()) if self.is_greedy else self.couple(distribution(logits, self.sampling), position)

    def couple(self, given: Distribution, position: int) -> int:
        """The token of `given` that the seed's noise selects."""
        if self.sampling.seed is None:
            return self.draw(given)
        noise = gumbel(self.sampling.seed, position, given.ids)
        return int(given.ids[int((np.log(given.probs) + noise).argmax())])

    def draw(self, given: Distribution) -> int:
        """A token drawn from `given` with the generator."""
        i = int(given.probs.cumsum().searchsorted(self.rng.random(), side="right"))
        return int(given.ids[min(i, len(given.ids) - 1)])

    def pick(self, logits: Logits, position: int) -> Pick:
        """A drafter's token, chosen so that the target most likely agrees: same rule, same noise."""
        if self.is_greedy:
            token = int(logits.argmax())
            return Pick(token, peak(logits, token), None)
        given = distribution(logits, self.sampling)
        confidence = float(given.probs.max())
        return Pick(self.couple(given, position), confidence, None if self.is_coupled else given)
