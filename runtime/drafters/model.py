"""Drafts from a smaller model with the target's vocabulary (Leviathan et al., arXiv 2211.17192).

The draft model's own cache memo sees to it that nothing is decoded twice: after a verified draft it lacks one or two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.backend import Backend
from runtime.draft import UNSAID, Budget, Draft, Drafter, Pick, Tokens, certain


class ModelDrafter(Drafter):
    """Asks a draft model token by token, as long as the budget says that the next one is worth it."""

    name = "model"
    has_passes = True

    def __init__(self, backend: Backend, n_vocab: int) -> None:
        self.backend, self.n_vocab = backend, n_vocab  # the target's vocabulary; the draft's may have a longer tail

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain, with `budget.branches` leaves beside each of its tokens; empty when not even one token is worth it."""
        n = len(context)
        tokens = np.empty(n + budget.max_k, dtype=np.int32)
        tokens[:n] = context
        picks: list[Pick] = []
        while len(picks) < budget.max_k and n + len(picks) < self.backend.n_ctx:
            end = n + len(picks)
            if picks and not budget.is_worth_drafting():
                break
            pick = budget.pick(self.backend.forward(tokens[:end])[0, : self.n_vocab], tuple(tokens[n:end].tolist()), budget.branches)
            if not budget.go_on(pick.confidence, UNSAID if pick.distribution else pick.token):
                break
            tokens[end] = pick.token
            picks.append(pick)
        return as_draft(picks, budget.max_k)

    def recall(self, context: Tokens) -> None:
        """Has the draft model go back to that conversation."""
        self.backend.recall(context)

    def n_missing(self, context: Tokens) -> int:
        """What the draft model's cache lacks; nothing where the context is too long for it to guess at all."""
        return len(context) - self.backend.n_cached(context) if len(context) < self.backend.n_ctx else 0

    def take_in(self, context: Tokens) -> None:
        """Decodes what is missing."""
        self.backend.forward(context)

    def close(self) -> None:
        """Frees the draft model's context."""
        self.backend.close()


def as_draft(picks: Sequence[Pick], most: int) -> Draft:
    """The picked tokens as a chain, then the next best beside each as leaves, `most` nodes in all."""
    chain = Draft(tuple(pick.token for pick in picks), probs=tuple(pick.distribution for pick in picks if pick.distribution) or None)
    leaves = [(token, depth - 1) for depth, pick in enumerate(picks) for token in pick.others][: most - len(picks)]
    if not leaves:
        return chain
    probs = chain.probs and (*chain.probs, *(certain(token) for token, _ in leaves))
    return Draft((*chain.tokens, *(token for token, _ in leaves)), (*range(-1, len(picks) - 1), *(parent for _, parent in leaves)), probs)
