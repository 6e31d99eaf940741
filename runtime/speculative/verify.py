"""Verification rules that accept draft tokens without changing the distribution of the text.

Coupled (a seed, or temperature 0): the target's choice is a function of its logits and the seed, and a draft token is
accepted if it equals that choice (Daliri et al., arXiv 2408.07978). Rejection (no seed): accept with min(1, p/q), else
draw from the residual (Leviathan et al., arXiv 2211.17192; several children of a node in sequence as in SpecInfer,
arXiv 2305.09781). Knows logits and drafts; knows no model and no clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from runtime.core.draft import Distribution, Draft, Logits, Path, certain
from runtime.core.drafter import Pick
from runtime.sampling.sampler import Sampler


class Verdict(NamedTuple):
    """The tokens that follow the context: those of the accepted nodes and one of the target's own."""

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]  # node indices, from the root down


class Rule(ABC):
    """A verification rule under which the text has the target's own distribution."""

    fixes_text: bool  # whether the text is a function of the logits and the seed
    can_score_rejected: bool  # whether tokens that the stopping criterion left out can be compared with the text

    @abstractmethod
    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
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

    fixes_text = can_score_rejected = True

    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
        """See Rule; without a distribution, because only the token is compared."""
        return sampler.pick(logits, path, n_others)._replace(distribution=None)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """See Rule."""
        token = sampler.choose(row, path)
        return token, draft.child(node, token)


class Rejection(Rule):
    """Accepts the first child that passes the rejection test against the residual of the target's distribution; if none
    does, draws a token from the residual.
    """

    fixes_text = can_score_rejected = False

    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
        """See Rule; with the distribution that the token was drawn from."""
        return sampler.pick(logits, path, n_others)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """See Rule."""
        left = sampler.distribution(row, path)
        for child in draft.children(node):
            token = draft.tokens[child]
            given = draft.probs[child] if draft.probs else certain(token)
            if sampler.rng.random() * given.of(token) < left.of(token):
                return token, child
            left = residual(left, given)
        return sampler.draw(left), None


COUPLED, REJECTION = Coupled(), Rejection()


def rule_of(sampler: Sampler) -> Rule:
    """Return the rule for a reply: coupled if its choices are greedy or have a seed, else rejection."""
    return COUPLED if sampler.is_greedy or sampler.sampling.seed is not None else REJECTION


def residual(target: Distribution, given: Distribution) -> Distribution:
    """Return the normalized max(0, p - q) of `target` p and `given` q, or p if that is zero everywhere."""
    at = given.ids.searchsorted(target.ids).clip(max=len(given.ids) - 1)
    rest = np.maximum(0.0, target.probs - np.where(given.ids[at] == target.ids, given.probs[at], 0.0))
    total = rest.sum()
    if total <= 0:
        return target
    kept = rest > 0
    return Distribution(target.ids[kept], rest[kept] / total)
