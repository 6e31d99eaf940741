"""Chooses tokens from rows of logits, with the same settings for the target and the drafters of a reply.

The pipeline's order: logit bias, grammar mask, repetition, frequency and presence penalties, temperature, top-k, top-p,
min-p. Knows nothing about drafts' acceptance (see verify.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Distribution, Logits, Path, Tokens, certain
from runtime.core.drafter import Pick
from runtime.core.errors import SettingsError
from runtime.sampling.logits import FEW, Report, Row, TokenLogprobs, distribution, lead, logprobs, penalise, uncertain
from runtime.sampling.settings import MAX_SEED, Sampling

NO_CONTEXT: Tokens = np.zeros(0, dtype=np.int32)


class TokenMask(Protocol):
    """The tokens that a constraint such as a grammar allows after the reply so far."""

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and the tentative tokens of `path`."""

    def forced(self) -> Path:
        """Return the tokens that must come next, as far as known."""


class Sampler:
    """Chooses the tokens of one reply. `begin` sets the context before each step; a path continues it tentatively."""

    def __init__(self, sampling: Sampling, mask: TokenMask | None = None, tolerance: float = 0.0) -> None:
        self.sampling, self.mask = sampling, mask
        self.tolerance = tolerance  # difference of a logit between batch widths, at most
        self.n_near_ties = 0  # choices that such a difference could change
        self.is_greedy = sampling.temperature == 0
        self.rng = random.Random(sampling.seed)  # not NumPy's, whose import takes longer than a first token
        biases = dict[int, float]()
        for token, bias in sampling.logit_bias:
            biases[token] = biases.get(token, 0.0) + bias
        self._bias_ids = np.array([*biases], dtype=np.int64)
        with np.errstate(over="ignore"):  # a very negative bias forbids the token, as minus infinity does
            self._biases = np.array([*biases.values()]).astype(np.float32)
        self._changes_logits = bool(sampling.logit_bias or mask or sampling.penalises)
        self.context, self.position = NO_CONTEXT, 0

    def begin(self, context: Tokens, position: int) -> None:
        """Set the `context` [n] that every path starts after; its last `position` tokens are the reply's."""
        self.context, self.position = context, position
        if self.mask:
            self.mask.begin(context[len(context) - position :])

    def adjusted(self, logits: Logits, path: Path = ()) -> Logits:
        """Return the row after bias, mask and penalties; the row itself if none applies."""
        if not self._changes_logits:
            return logits
        row = logits.copy()
        inside = self._bias_ids < len(row)  # a draft model's vocabulary may be shorter
        row[self._bias_ids[inside]] += self._biases[inside]
        if self.mask:
            row[~self.mask.allowed(path)[: len(row)]] = -np.inf
        if (self.mask or len(self._bias_ids) >= len(row)) and row.max() == -np.inf:
            raise SettingsError(
                "No token is left to choose from: logit_bias forbids what the grammar demands. Forbid less."
            )
        if self.sampling.penalises:
            n = self.sampling.penalty_last_n
            recent = np.concatenate([self.context[-n:], np.array(path, dtype=np.int32)])[-n:]
            penalise(row, recent, self.sampling)
        return row

    def forced(self) -> Path:
        """Return the tokens that the grammar forces."""
        return self.mask.forced() if self.mask else ()

    def distribution(self, logits: Logits, path: Path = ()) -> Distribution:
        """Return the distribution of the token after `path`, after the whole pipeline; temperature above 0."""
        return distribution(Row(self.adjusted(logits, path)), self.sampling)

    def choose(self, logits: Logits, path: Path = ()) -> int:
        """Return the token by logits and seed: argmax of log p(x) + Gumbel noise, or of the logits when greedy."""
        row = self.adjusted(logits, path)
        if self.is_greedy:
            best = int(row.argmax())
            if self.tolerance:
                others = max(part.max(initial=-np.inf) for part in (row[:best], row[best + 1 :]))
                self._count_near_tie(float(row[best] - others))
            return best
        found = Row(row)
        if (token := found.lone(lead(self.sampling, len(row)))) is not None:
            return token
        given = uncertain(found, self.sampling)
        if self.tolerance and self.sampling.seed is not None:
            scores = np.sort(self._scores(given, len(path))) * self.sampling.temperature
            self._count_near_tie(float(scores[-1] - scores[-2]) if len(scores) > 1 else np.inf)
        return self.couple(given, len(path))

    def _count_near_tie(self, lead: float) -> None:
        """Count a choice that rounding could change; `lead` is that of the best over the next, in logits."""
        self.n_near_ties += lead <= 2 * self.tolerance

    def couple(self, given: Distribution, depth: int) -> int:
        """Return the token of `given` that the seed's noise selects, `depth` tokens after the context. Without
        a seed, the token is drawn.
        """
        if len(given.ids) == 1:
            return int(given.ids[0])
        return (
            self.draw(given) if self.sampling.seed is None else int(given.ids[int(self._scores(given, depth).argmax())])
        )

    def _scores(self, given: Distribution, depth: int) -> NDArray[np.float64]:
        """Return scores [n] for the tokens of `given`: log p(x), and with a seed its noise."""
        scores: NDArray[np.float64] = np.log(given.probs)
        if self.sampling.seed is None:
            return scores
        return scores + gumbel(self.sampling.seed, self.position + depth, given.ids)

    def report(self, n: int, after_sampling: bool) -> Report:
        """Return a function for log probabilities of tokens and the `n` most likely: of the model itself, or after
        sampling.
        """
        return partial(self._logprobs if after_sampling else logprobs, n=n)

    def _logprobs(self, rows: Logits, tokens: Sequence[int], n: int) -> tuple[TokenLogprobs, ...]:
        """Return log probabilities as logits.logprobs does, but after the whole pipeline: a greedy choice has
        probability 1.
        """
        found = []
        for i, token in enumerate(tokens):
            given = certain(token) if self.is_greedy else self.distribution(rows[i], tuple(tokens[:i]))
            order = np.argsort(-given.probs, kind="stable")[:n]
            top = zip(given.ids[order].tolist(), np.log(given.probs[order]).tolist(), strict=True)
            found.append(TokenLogprobs(token, math.log(given.of(token)), tuple(top)))
        return tuple(found)

    def draw(self, given: Distribution) -> int:
        """Return a token drawn from `given` with the generator."""
        chance, last = self.rng.random(), len(given.ids) - 1
        if last < FEW:
            i = next((i for i, below in enumerate(accumulate(given.probs.tolist())) if chance < below), last)
        else:
            i = min(int(given.probs.cumsum().searchsorted(chance, side="right")), last)
        return int(given.ids[i])

    def pick(self, logits: Logits, path: Path = ()) -> Pick:
        """Return a drafter's token, likely to agree with the target's: same pipeline, same rule, same noise."""
        row = Row(self.adjusted(logits, path))
        confidence = row.peak()
        if self.is_greedy:
            return Pick(row.likeliest(), confidence, None)
        given = distribution(row, self.sampling)
        return Pick(self.couple(given, len(path)), confidence, given)


class SharedMask:
    """Allows the tokens that all its masks allow; if there are none, those of the last mask. Implements TokenMask."""

    def __init__(self, masks: Sequence[TokenMask]) -> None:
        self._masks = masks

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""
        for mask in self._masks:
            mask.begin(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`."""
        masks = [mask.allowed(path) for mask in self._masks]
        found: NDArray[np.bool_] = np.logical_and.reduce(masks)
        return found if found.any() else masks[-1]

    def forced(self) -> Path:
        """Return the forced tokens of the first mask that has any."""
        return next(filter(None, (mask.forced() for mask in self._masks)), ())


def together(masks: Sequence[TokenMask]) -> TokenMask | None:
    """Return all masks as one, or None if there are none."""
    return SharedMask(masks) if len(masks) > 1 else next(iter(masks), None)


def mix(x: Any) -> Any:
    """Return SplitMix64's finalizer of a Python int or, wrapping, of a uint64 array (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor
        x = x & MAX_SEED if isinstance(x, int) else x
    return x ^ (x >> 31)


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Gumbel noise [n] for tokens `ids` [n], a function of (seed, position, id) alone."""
    key = np.uint64(mix(mix(seed + 0x9E3779B97F4A7C15 & MAX_SEED) + position & MAX_SEED))
    bits = mix(mix(ids.astype(np.uint64) + key))
    uniform = ((bits >> 11).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise
