"""Verification rules that accept draft tokens without changing the distribution of the text.

Coupled (a seed, or temperature 0): the target's choice is a function of its logits and the seed, and a draft token is
accepted if it equals that choice (Daliri et al., arXiv 2408.07978). Rejection (no seed): accept with min(1, p/q), else
draw from the residual (Leviathan et al., arXiv 2211.17192; several children of a node in sequence as in SpecInfer,
arXiv 2305.09781). Block (no seed, a chain of sampled tokens): the same for the chain as a whole, which accepts at least
as many tokens on average (Sun et al., arXiv 2403.10444). Knows logits and drafts; knows no model and no clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, islice
from operator import truediv
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Distribution, Draft, Logits, Path, certain
from runtime.core.drafter import Pick
from runtime.sampling.sampler import Sampler


class Verdict(NamedTuple):
    """The tokens that follow the context: those of the accepted nodes and one of the target's own."""

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]  # node indices, from the root down


class Rule(ABC):
    """A verification rule under which the text has the target's own distribution."""

    can_score_rejected: bool  # whether tokens that the stopping criterion left out can be compared with the text

    @abstractmethod
    def pick(self, sampler: Sampler, logits: Logits, path: Path = ()) -> Pick:
        """Return a drafter's choice from its own `logits` [n_vocab] after `path`, with the data that the rule needs."""

    @abstractmethod
    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """Return the token after `node`, by its logits `row` [n_vocab], and the child with that token or None."""

    def verify(self, draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
        """Verify the draft from its root, at the context of `sampler`; `logits` [1 + len(draft), n_vocab]."""
        path: Path = ()
        accepted: list[int] = []
        node = -1
        while True:
            token, child = self.follow(draft, node, logits[node + 1], sampler, path)
            path = (*path, token)
            if child is None:
                return Verdict(path, tuple(accepted))
            accepted.append(child)
            node = child


class Coupled(Rule):
    """Accepts a draft token if it equals the target's own choice."""

    can_score_rejected = True

    def pick(self, sampler: Sampler, logits: Logits, path: Path = ()) -> Pick:
        """See Rule; without a distribution, because only the token is compared."""
        return sampler.pick(logits, path)._replace(distribution=None)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """See Rule."""
        token = sampler.choose(row, path)
        return token, draft.child(node, token)


class Rejection(Rule):
    """Accepts the first child that passes the rejection test against the residual of the target's distribution; if none
    does, draws a token from the residual.
    """

    can_score_rejected = False

    def pick(self, sampler: Sampler, logits: Logits, path: Path = ()) -> Pick:
        """See Rule; with the distribution that the token was drawn from."""
        return sampler.pick(logits, path)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """See Rule."""
        children = [*draft.children(node)]
        if not children:
            return sampler.choose(row, path), None
        left = sampler.distribution(row, path)
        for child in children:
            token = draft.tokens[child]
            given = draft.probs[child] if draft.probs else certain(token)
            if sampler.rng.random() * given.of(token) < left.of(token):
                return token, child
            left = residual(left, given)
        return sampler.draw(left), None


class Block(Rejection):
    """Accepts the longest prefix of a chain that passes its test, then draws a token from the residual there.

    The test of a prefix depends on all its tokens: what the target likes better than the draft makes up for what it
    likes less. Tokens that were not sampled, as in a tree, for which that brings nothing, are left to Rejection.
    """

    def verify(self, draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
        """See Rule."""
        if not draft.probs:
            return super().verify(draft, logits, sampler)
        given, chances, n_most = draft.probs, [sampler.rng.random() for _ in draft.tokens], len(draft)
        after = cache(lambda n: sampler.distribution(logits[n], draft.tokens[:n]))
        shares = shares_of(draft.tokens, given, after, chances)

        def passes(n: int) -> bool:
            chance, share = chances[n - 1], shares[n]
            return chance < share and (n == n_most or chance < chance_alone(share, after(n), given[n]))

        n = next(filter(passes, range(len(shares) - 1, 0, -1)), 0)
        left = after(n) if n == n_most else residual(after(n), given[n], shares[n])
        return Verdict((*draft.tokens[:n], sampler.draw(left)), tuple(range(n)))


COUPLED, REJECTION, BLOCK = Coupled(), Rejection(), Block()


def rule_of(sampler: Sampler) -> Rule:
    """Return the rule for a reply: coupled if its choices are greedy or have a seed, else block."""
    return COUPLED if sampler.is_greedy or sampler.sampling.seed is not None else BLOCK


def shares_of(
    tokens: Path, given: Sequence[Distribution], after: Callable[[int], Distribution], chances: Sequence[float]
) -> list[float]:
    """Return for each number of leading draft tokens, from 0 up, the probability that at least those are accepted.

    Ends where no longer prefix can be, by the random `chances` from 0 to 1 of `tokens`. `after(n)` is the target's
    distribution after n tokens; it is asked for none that the target excludes.
    """
    shares, drawn = [1.0], [each.of(token) for each, token in zip(given, tokens, strict=True)]
    for n, token in enumerate(tokens):
        if shares[n] < 1 and not can_accept_more(shares[n], drawn[n:], chances[n:]):
            break
        shares.append(min(1.0, shares[n] * after(n).of(token) / drawn[n]))
    return shares


def can_accept_more(share: float, drawn: Sequence[float], chances: Sequence[float]) -> bool:
    """Return whether a prefix longer than one with this share can be accepted, whatever the target says of the rest.

    It needs a chance below its share, and a token of probability q makes the share at most 1 / q times as large.
    """
    bounds = accumulate(drawn, truediv, initial=share)
    return any(chance < bound for chance, bound in zip(chances, islice(bounds, 1, None), strict=True))


def chance_alone(share: float, target: Distribution, given: Distribution) -> float:
    """Return the probability that a prefix is accepted if no longer one is, so that it is accepted with probability
    `share` in all; `target` and `given` are the distributions of the token after it.
    """
    left = float(excess(target, given, share).sum())
    return left / (left + 1 - share) if share < 1 else 1.0


def excess(target: Distribution, given: Distribution, share: float = 1.0) -> NDArray[np.float64]:
    """Return max(0, share * p - q) at the tokens of `target` p, for `given` q."""
    at = given.ids.searchsorted(target.ids).clip(max=len(given.ids) - 1)
    return np.maximum(0.0, share * target.probs - np.where(given.ids[at] == target.ids, given.probs[at], 0.0))


def residual(target: Distribution, given: Distribution, share: float = 1.0) -> Distribution:
    """Return the normalized max(0, share * p - q) of `target` p and `given` q, or p if that is zero everywhere."""
    rest = excess(target, given, share)
    total = rest.sum()
    if total <= 0:
        return target
    kept = rest > 0
    return Distribution(target.ids[kept], rest[kept] / total)
