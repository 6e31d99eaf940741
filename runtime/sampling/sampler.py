"""Chooses tokens from rows of logits, with the same settings for the target and the drafters of a reply.

The pipeline's order: logit bias, grammar mask, repetition, frequency and presence penalties, temperature, top-k, top-p,
min-p; with rare samplers, see chain.py. Knows nothing about drafts' acceptance (see verify.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Distribution, Logits, Path, Tokens, certain
from runtime.core.drafter import Pick
from runtime.core.errors import SettingsError
from runtime.sampling.dry import NO_BREAKERS, Breakers
from runtime.sampling.logits import FEW, Report, Row, TokenLogprobs, distribution, lead, logprobs, uncertain
from runtime.sampling.masks import TokenMask, keep_allowed
from runtime.sampling.noise import gumbel
from runtime.sampling.reply_samplers import ReplySamplers
from runtime.sampling.settings import Sampling


class Sampler:
    """Chooses the tokens of one reply. `begin` sets the context before each step; a path continues it tentatively."""

    def __init__(
        self,
        sampling: Sampling,
        mask: TokenMask | None = None,
        tolerance: float = 0.0,
        breakers: Breakers = NO_BREAKERS,
    ) -> None:
        self.sampling, self.mask = sampling, mask
        self.tolerance = tolerance  # difference of a logit between batch widths, at most
        self.n_near_ties = 0  # choices that such a difference could change
        self.is_greedy = sampling.is_greedy
        self.rng = random.Random(sampling.seed)  # not NumPy's, whose import takes longer than a first token
        self._biases = Biases(sampling.logit_bias)
        self._samplers: ReplySamplers | None = None
        if not sampling.is_simple:
            self._samplers = ReplySamplers(sampling, breakers, lambda: self.rng.getrandbits(64))
        self._has_order = sampling.rare.has_order
        self._changes_logits = bool(sampling.logit_bias or mask or (self._samplers and self._samplers.changes_logits))
        self.position = 0

    def begin(self, context: Tokens, position: int) -> None:
        """Set the `context` [n] that every path starts after; its last `position` tokens are the reply's."""
        self.position = position
        if self._samplers:
            self._samplers.begin(context, position)
        if self.mask:
            self.mask.begin(context[len(context) - position :])

    def adjusted(self, logits: Logits, path: Path = ()) -> Logits:
        """Return the row after bias, mask and penalties; the row itself if none applies."""
        if not self._changes_logits:
            return logits
        row = logits.copy()
        if self._biases:
            self._biases.add_to(row)
        if self.mask:
            keep_allowed(row, self.mask, path)
        if (self.mask or len(self._biases) >= len(row)) and row.max() == -np.inf:
            raise SettingsError(
                "No token is left to choose from: logit_bias forbids what the grammar demands. Forbid less."
            )
        if self._samplers:
            self._samplers.change(row, path)
        return row

    def surprise_limit(self, path: Path) -> float | None:
        """Return mirostat's limit on the surprise of the token after `path`, which the target chose; None without."""
        return self._samplers.surprise_limit(path) if self._samplers else None

    def resume(self, surprise_limit: float, n: int) -> None:
        """Continue a reply after `n` tokens with mirostat's limit there."""
        if self._samplers:
            self._samplers.resume(surprise_limit, n)

    def forced(self) -> Path:
        """Return the tokens that the grammar forces."""
        return self.mask.forced() if self.mask else ()

    def distribution(self, logits: Logits, path: Path = ()) -> Distribution:
        """Return the distribution of the token after `path`, after the whole pipeline; temperature above 0."""
        return self._given(Row(self.adjusted(logits, path)), path)

    def choose(self, logits: Logits, path: Path = ()) -> int:
        """Return the token by logits and seed: argmax of log p(x) + Gumbel noise, or of the logits when greedy."""
        row = self.adjusted(logits, path)
        if self.is_greedy and self.sampling.rare.samplers is None:
            best = int(row.argmax())
            if self.tolerance:
                others = max(part.max(initial=-np.inf) for part in (row[:best], row[best + 1 :]))
                self._count_near_tie(float(row[best] - others))
            return best
        found = Row(row)
        if self._has_order:
            given = self._given(found, path)
        elif (token := found.lone(lead(self.sampling, len(row)))) is not None:
            return token
        else:
            given = uncertain(found, self.sampling)
        if self.tolerance and self.sampling.seed is not None and len(given.ids) > 1:
            scores = np.sort(self._scores(given, len(path))) * self.sampling.temperature
            self._count_near_tie(float(scores[-1] - scores[-2]))
        return self.couple(given, len(path))

    def _given(self, row: Row, path: Path, is_targets: bool = True) -> Distribution:
        """Return the distribution of the token after `path` by its adjusted row, the target's or a drafter's."""
        if self._samplers is None:
            return distribution(row, self.sampling)
        return self._samplers.distribution(row, path, is_targets)

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
        given = self._given(row, path, is_targets=False)
        return Pick(self.couple(given, len(path)), confidence, given)


class Biases:
    """What is added to logits, by token."""

    def __init__(self, pairs: Sequence[tuple[int, float]]) -> None:
        biases = dict[int, float]()
        for token, bias in pairs:
            biases[token] = biases.get(token, 0.0) + bias
        self._ids = np.array([*biases], dtype=np.int64)
        with np.errstate(over="ignore"):  # a very negative bias forbids the token, as minus infinity does
            self._values = np.array([*biases.values()]).astype(np.float32)

    def __len__(self) -> int:
        return len(self._ids)

    def add_to(self, row: Logits) -> None:
        """Add the biases to `row` [n_vocab], which a draft model's shorter vocabulary may have."""
        inside = self._ids < len(row)
        row[self._ids[inside]] += self._values[inside]
