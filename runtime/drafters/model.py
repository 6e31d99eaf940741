"""Drafts from a smaller model with the target's vocabulary (Leviathan et al., arXiv 2211.17192).

The draft model's own cache memo sees to it that nothing is decoded twice: after a verified draft it lacks one or two tokens.
"""

from __future__ import annotations

import numpy as np

from runtime.backend import Backend
from runtime.draft import NO_DRAFT, Budget, Distribution, Draft, Drafter, Tokens


class ModelDrafter(Drafter):
    """Asks a draft model token by token, as long as the budget says that the next one is worth it."""

    name = "model"

    def __init__(self, backend: Backend, n_vocab: int) -> None:
        self.backend, self.n_vocab = backend, n_vocab  # the target's vocabulary; the draft's may have a longer tail

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain; empty when the draft model is not confident enough even for one token."""
        n = len(context)
        tokens = np.empty(n + budget.max_k, dtype=np.int32)
        tokens[:n] = context
        given: list[Distribution] = []
        k = 0
        while k < budget.max_k and n + k < self.backend.n_ctx:
            pick = budget.pick(self.backend.forward(tokens[: n + k])[0, : self.n_vocab], k)
            if not budget.go_on(pick.confidence):
                break
            tokens[n + k] = pick.token
            if pick.distribution is not None:
                given.append(pick.distribution)
            k += 1
        return Draft(tuple(tokens[n : n + k].tolist()), probs=tuple(given) or None) if k else NO_DRAFT

    def close(self) -> None:
        """Frees the draft model's context."""
        self.backend.close()
