"""Drafts from a smaller model with the target's vocabulary (Leviathan et al., arXiv 2211.17192).

The draft model has its own cache, so no token is decoded twice: after a verified draft, one or two tokens are missing.
If the context is longer than its own window, it reads the first tokens and the latest (StreamingLLM, arXiv 2309.17453;
for drafts: MagicDec, arXiv 2408.11049). The time and memory of drafting therefore stay bounded as the context grows.
The target's own first layers are such a model, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.core.backend import Backend, SharedPasses
from runtime.core.draft import Draft, Logits, PassInput, Tokens, seen
from runtime.core.drafter import LAST, UNKNOWN_TOKEN, Budget, Drafter, DraftGenerator, Pick
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("model", Cost.PASS, Needs.DRAFT, label="a draft model", is_usual=True, place=1, file="a draft model")
class ModelDrafter(Drafter):
    """Drafts with a draft model, token by token, until the stopping criterion ends the draft.

    `n_vocab` is the target's vocabulary size; the draft model's may be larger. `room` is the number of tokens of the
    draft model's context that are reserved for draft tokens.
    """

    has_passes = True

    def __init__(self, backend: Backend, n_vocab: int, room: int = 1, shared: SharedPasses | None = None) -> None:
        self.backend, self.n_vocab = backend, n_vocab
        self._shared, self.shares_passes = shared, shared is not None  # the same backend, if sequences share its passes
        self.n_seen = backend.n_ctx - room  # most tokens of a context that it reads

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a chain; empty if no token pays."""
        drafting = self.drafting(context, budget)
        try:
            wanted = next(drafting)
            while True:
                wanted = drafting.send(self.backend.forward(wanted))
        except StopIteration as end:
            draft: Draft = end.value
            return draft

    def drafting(self, context: Tokens, budget: Budget) -> DraftGenerator:
        """Return the generator form of `propose`, which yields the context of each draft token."""
        context = self._view(context, len(context))
        n = len(context)
        tokens = np.empty(n + budget.max_k, dtype=np.int32)
        tokens[:n] = context
        picks: list[Pick] = []
        for end in range(n, min(n + budget.max_k, self.backend.n_ctx)):
            logits = yield tokens[:end]
            if not take(logits[0, : self.n_vocab], budget, picks):
                break
            tokens[end] = picks[-1].token
        return as_draft(picks)

    def forward_all(self, contexts: Sequence[Tokens]) -> Sequence[Logits]:
        """See `Drafter.forward_all`; the contexts have separate passes if they do not fit together."""
        if self._shared is None or not self._shared.fits(map(len, contexts)):
            return [self.backend.forward(each).copy() for each in contexts]
        return self._shared.forward_all([PassInput(each) for each in contexts])

    def resume(self, context: Tokens) -> None:
        """Load the draft model's cached conversation for `context`; shared passes do so themselves."""
        if not self.shares_passes:
            self.backend.resume(context)

    def n_uncached(self, context: Tokens) -> int:
        """Return the number of uncached tokens among those that the draft model will read."""
        view = self._view(context, len(context))
        return len(view) - self.backend.n_cached(view)

    def prefill(self, context: Tokens, n_whole: int) -> None:
        """Decode the uncached tokens among those that the draft model will read."""
        self.backend.forward(self._view(context, n_whole))

    def _view(self, context: Tokens, n_whole: int) -> Tokens:
        return seen(context, self.n_seen, n_whole)

    def close(self) -> None:
        """Free the draft model's context."""
        self.backend.close()


def take(row: Logits, budget: Budget, picks: list[Pick]) -> bool:
    """Append the pick from a row of logits [n_vocab] to `picks` if the stopping criterion accepts it. Return whether to
    draft another token.
    """
    pick = budget.pick(row, tuple([each.token for each in picks]))
    answer = budget.should_continue(pick.confidence, UNKNOWN_TOKEN if pick.distribution else pick.token)
    if answer:
        picks.append(pick)
    return answer is not LAST and bool(answer) and not budget.is_end(pick.token)


def as_draft(picks: Sequence[Pick]) -> Draft:
    """Return the picked tokens as a draft."""
    return Draft(
        tuple([pick.token for pick in picks]),
        None,
        tuple([pick.distribution for pick in picks if pick.distribution]) or None,
    )


@Registered("layerskip", Cost.TARGET, Needs.EARLY_EXIT, label="the model's first layers", colour="warning", place=8)
class LayerSkipDrafter(ModelDrafter):
    """A draft model that consists of the target's first layers (Elhoushi et al., arXiv 2404.16710): no second model, no
    second cache.

    The backend implements the early exit, and the exit layer is measured at load. Most models were not trained for
    early exit: the controller then measures that their drafts do not pay.
    """

    spares_work = sees_images = True

    def n_uncached(self, context: Tokens) -> int:
        """Return 0: the target reads its prompts by itself, and before the first draft."""
        return 0
