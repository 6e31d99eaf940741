"""Which drafted tokens the target accepts, by two lossless rules. Knows logits and drafts; knows no model and no clock.

Coupled (a seed, or temperature 0): the target's own choice is a function of its logits and the seed, and the draft is
right where it says the same (Daliri et al., arXiv 2408.07978). Rejection (no seed): accept with min(1, p/q), else draw
from the residual (Leviathan et al., arXiv 2211.17192; several children of a node one after another as in SpecInfer,
arXiv 2305.09781).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.core.draft import Distribution, Draft, Logits, Path, certain
from runtime.sampling.sampler import Sampler


class Verdict(NamedTuple):
    """The tokens that follow the context: the accepted nodes' and one of the target's own."""

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]  # node indices, from the root down


def verify(draft: Draft, logits: Logits, sampler: Sampler) -> Verdict:
    """Walks the draft from its root, where the sampler has begun; `logits` [1 + len(draft), n_vocab]."""
    step = follow_choice if sampler.is_coupled else follow_residual
    path: Path = ()
    accepted: list[int] = []
    node = -1
    while True:
        token, child = step(draft, node, logits[node + 1], sampler, path)
        path = (*path, token)
        if child is None:
            return Verdict(path, tuple(accepted))
        accepted.append(child)
        node = child


def follow_choice(draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
    """Coupled rule: the target's token, and the child that carries it."""
    token = sampler.choose(row, path)
    return token, draft.child(node, token)


def follow_residual(draft: Draft, node: int, row: Logits, sampler: Sampler, path: Path) -> tuple[int, int | None]:
    """Rejection rule: the first child accepted against what is left of the target's distribution, else a token from the
    rest.
    """
    left = sampler.distribution(row, path)
    for child in draft.children(node):
        token = draft.tokens[child]
        given = draft.probs[child] if draft.probs else certain(token)
        if sampler.rng.random() * given.of(token) < left.of(token):
            return token, child
        left = residual(left, given)
    return sampler.draw(left), None


def residual(target: Distribution, given: Distribution) -> Distribution:
    """The normalised max(0, p - q); p itself where that vanishes."""
    at = given.ids.searchsorted(target.ids).clip(max=len(given.ids) - 1)
    rest = np.maximum(0.0, target.probs - np.where(given.ids[at] == target.ids, given.probs[at], 0.0))
    total = rest.sum()
    if total <= 0:
        return target
    kept = rest > 0
    return Distribution(target.ids[kept], rest[kept] / total)
