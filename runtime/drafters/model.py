"""Drafts from a smaller model with the target's vocabulary (Leviathan et al., arXiv 2211.17192).

The draft model's own cache memo sees to it that nothing is decoded twice: after a verified draft it lacks one or two
tokens. Of a context longer than its own it sees the first tokens and the latest (StreamingLLM, arXiv 2309.17453; for
drafts: MagicDec, arXiv 2408.11049), so that drafting takes no more time and memory however long the context grows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.core.backend import Backend, SharedPasses
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens, certain
from runtime.core.drafter import LAST, UNKNOWN_TOKEN, Budget, Drafter, Drafting, Pick
from runtime.drafters.registry import Cost, Needs, Registered

SINKS = 4  # first tokens, which attention falls back on: the paper finds four enough


@Registered("model", Cost.PASS, Needs.DRAFT, label="a draft model", is_usual=True, place=1, file="a draft model")
class ModelDrafter(Drafter):
    """Asks a draft model token by token, as long as the budget says that the next one is worth it.

    `n_vocab` is the target's, of which the draft's may be a longer one; `room` is how much of the draft's context is
    for drafted tokens.
    """

    has_passes = True

    def __init__(self, backend: Backend, n_vocab: int, room: int = 1, shared: SharedPasses | None = None) -> None:
        self.backend, self.n_vocab = backend, n_vocab
        self._shared, self.shares_passes = shared, shared is not None  # the same, where conversations share its passes
        self.n_seen = backend.n_ctx - room  # most tokens of a context that it looks at

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain, with `budget.branches` leaves beside each of its tokens; empty when no token is worth it."""
        drafting = self.drafting(context, budget)
        try:
            wanted = next(drafting)
            while True:
                wanted = drafting.send(self.backend.forward(wanted))
        except StopIteration as end:
            draft: Draft = end.value
            return draft

    def drafting(self, context: Tokens, budget: Budget) -> Drafting:
        """The same, token by token."""
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
        return as_draft(picks, budget.max_k)

    def forward_all(self, contexts: Sequence[Tokens]) -> Sequence[Logits]:
        """As Drafter says; one by one where they do not fit together."""
        if self._shared is None or not self._shared.fits(map(len, contexts)):
            return [self.backend.forward(each).copy() for each in contexts]
        return self._shared.forward_all([(each, NO_DRAFT) for each in contexts])

    def resume(self, context: Tokens) -> None:
        """Has the draft model go back to that conversation; passes that may be of several do so themselves."""
        if not self.shares_passes:
            self.backend.resume(context)

    def n_uncached(self, context: Tokens) -> int:
        """What the draft model's cache lacks of the tokens that it will look at."""
        view = self._view(context, len(context))
        return len(view) - self.backend.n_cached(view)

    def prefill(self, context: Tokens, n_whole: int) -> None:
        """Decodes what is missing of the tokens that it will look at."""
        self.backend.forward(self._view(context, n_whole))

    def _view(self, context: Tokens, n_whole: int) -> Tokens:
        """What the draft model sees of a context that is `n_whole` tokens long, or of its beginning."""
        n_skipped = skipped(n_whole, self.n_seen)
        return np.concatenate([context[:SINKS], context[SINKS + n_skipped :]]) if n_skipped else context

    def close(self) -> None:
        """Frees the draft model's context."""
        self.backend.close()


def take(row: Logits, budget: Budget, picks: list[Pick]) -> bool:
    """Adds the choice from a row of logits [n_vocab] to the `picks` before it, if it is wanted; is one more?"""
    pick = budget.pick(row, tuple([each.token for each in picks]), budget.branches)
    answer = budget.should_continue(pick.confidence, UNKNOWN_TOKEN if pick.distribution else pick.token)
    if answer:
        picks.append(pick)
    return answer is not LAST and bool(answer)


def skipped(n: int, n_seen: int) -> int:
    """How many tokens after the first are left out of a context of `n`, so that at most `n_seen` stay.

    They go in steps of half of that: what stays moves seldom, and must then be read anew.
    """
    step = max(1, n_seen // 2)
    return -(-max(0, n - n_seen) // step) * step


def as_draft(picks: Sequence[Pick], most: int) -> Draft:
    """The picked tokens as a chain, then the next best beside each as leaves, `most` nodes in all."""
    chain = Draft(
        tuple([pick.token for pick in picks]),
        None,
        tuple([pick.distribution for pick in picks if pick.distribution]) or None,
    )
    leaves = [(token, depth - 1) for depth, pick in enumerate(picks) for token in pick.others][: most - len(picks)]
    if not leaves:
        return chain
    probs = chain.probs and (*chain.probs, *(certain(token) for token, _ in leaves))
    return Draft(
        (*chain.tokens, *(token for token, _ in leaves)),
        (*range(-1, len(picks) - 1), *(parent for _, parent in leaves)),
        probs,
    )
