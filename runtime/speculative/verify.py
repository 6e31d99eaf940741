"""Rules that accept drafted tokens without changing what is said. Know logits and drafts; know no model and no clock.

Coupled (a seed, or temperature 0): the target's own choice is a function of its logits and the seed, and the draft is
right where it says the same (Daliri et al., arXiv 2408.07978). Rejection (no seed): accept with min(1, p/q), else draw
from the residual (Leviathan et al., arXiv 2211.17192; several children of a node one after another as in SpecInfer,
arXiv 2305.09781).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from runtime.core.draft import Distribution, Draft, Logits, Path, certain
from runtime.core.drafter import Pick
from runtime.sampling.sampler import Sampler


class Verdict(NamedTuple):
    """The tokens that follow the context: the accepted nodes' and one of the target's own."""

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]  # node indices, from the root down


class Rule(ABC):
    """A rule of acceptance under which text has the target's own law."""

    fixes_text: bool  # is the text a function of the logits and the seed?
    can_score_rejected: bool  # is a token compared with the text that was left out of a draft because of its value?

    @abstractmethod
    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
        """Return a drafter's choice from its own `logits` [n_vocab] after `path`, with all that the rule compares."""

    @abstractmethod
    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """Return the token after `node`, of which `row` [n_vocab] has the logits, and the child that carries it."""

    def verify(self, draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
        """Walk the draft from its root, where the sampler has begun; `logits` [1 + len(draft), n_vocab]."""
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
    """The target's own choice is compared with the draft."""

    fixes_text = can_score_rejected = True

    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
        """As Rule says: a token is a function of its context, so nothing else is compared."""
        return sampler.pick(logits, path, n_others)._replace(distribution=None)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """As Rule says."""
        token = sampler.choose(row, path)
        return token, draft.child(node, token)


class Rejection(Rule):
    """The first child is accepted that stands against what is left of the target's distribution; else a token is drawn
    from the rest.
    """

    fixes_text = can_score_rejected = False

    def pick(self, sampler: Sampler, logits: Logits, path: Path = (), n_others: int = 0) -> Pick:
        """As Rule says: with the distribution that the token was drawn from."""
        return sampler.pick(logits, path, n_others)

    def follow(self, draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
        """As Rule says."""
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
    """Return the rule for a reply: its choices can be repeated where they are greedy or have a seed."""
    return COUPLED if sampler.is_greedy or sampler.sampling.seed is not None else REJECTION


def residual(target: Distribution, given: Distribution) -> Distribution:
    """The normalised max(0, p - q); p itself where that vanishes."""
    at = given.ids.searchsorted(target.ids).clip(max=len(given.ids) - 1)
    rest = np.maximum(0.0, target.probs - np.where(given.ids[at] == target.ids, given.probs[at], 0.0))
    total = rest.sum()
    if total <= 0:
        return target
    kept = rest > 0
    return Distribution(target.ids[kept], rest[kept] / total)
