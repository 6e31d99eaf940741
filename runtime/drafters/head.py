"""Drafts from heads that read the target's hidden states, of which llama.cpp computes some.

A head is a draft model of few layers that starts from the hidden states of the target's last pass. Without those states
it cannot draft. Its backend runs it.
"""

from __future__ import annotations

from typing import Protocol

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Tokens
from runtime.core.drafter import Budget, DraftGenerator, Pick
from runtime.drafters.model import ModelDrafter, as_draft, take
from runtime.drafters.registry import Cost, Needs, Registered

FRESH = 16  # the target's passes whose states a head reads before it proposes again after a rest


class DraftingHead(Backend, Protocol):
    """Backend of a head on a target model."""

    def knows(self, context: Tokens) -> bool:
        """Return whether the target's hidden states are known for all of `context` but its last token."""

    def rest(self, n_passes: int) -> None:
        """Skip the hidden states of the target's next `n_passes` passes."""


class BoundedHead(DraftingHead, Protocol):
    """Backend of a head that drafts `n_tokens` tokens at most."""

    n_tokens: int


class HeadDrafter(ModelDrafter):
    """A draft model that is a head on the target. After a rest it resumes at the current text, because its draft
    depends mostly on the latest tokens.
    """

    reads_states = True

    def __init__(self, backend: DraftingHead, n_vocab: int, room: int = 1) -> None:
        super().__init__(backend, n_vocab, room)
        self._head = backend

    def rest(self, n_steps: int) -> None:
        """Skip the target's hidden states until shortly before the next proposal: reading them costs a few hundredths
        of a pass.
        """
        self._head.rest(max(0, n_steps - FRESH))

    def drafting(self, context: Tokens, budget: Budget) -> DraftGenerator:
        """Draft as ModelDrafter does; nothing where the target's hidden states are not known, as in a restored
        conversation.
        """
        if self._head.knows(context):
            return (yield from super().drafting(context, budget))
        return NO_DRAFT


class BoundedHeadDrafter(HeadDrafter):
    """A head that drafts token by token, and no more than its backend can."""

    def __init__(self, backend: BoundedHead, n_vocab: int, room: int = 1) -> None:
        super().__init__(backend, n_vocab, room)
        self._n_tokens = backend.n_tokens

    def drafting(self, context: Tokens, budget: Budget) -> DraftGenerator:
        """See `HeadDrafter.drafting`."""
        return (yield from super().drafting(context, budget._replace(max_k=min(budget.max_k, self._n_tokens))))


class BlockHeadDrafter(HeadDrafter):
    """A head whose backend returns independent rows of logits, one for each token of a block.

    The whole block comes from one pass, so the stopping criterion only decides how many of its tokens to verify.
    """

    has_passes = False

    def drafting(self, context: Tokens, budget: Budget) -> DraftGenerator:
        """Draft a chain of the block's first tokens; empty where the target's hidden states are not known."""
        if not self._head.knows(context):
            return NO_DRAFT
        picks: list[Pick] = []
        for row in (yield context)[: budget.max_k]:
            if not take(row[: self.n_vocab], budget, picks):
                break
        return as_draft(picks)


@Registered("dflash", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a DFlash head")
class DflashDrafter(BlockHeadDrafter):
    """A head in a file of its own whose layers see the whole block at once (Chen et al., arXiv 2602.06036)."""


@Registered("dspark", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a DSpark head")
class DsparkDrafter(BlockHeadDrafter):
    """A DFlash head whose tokens also depend on the one before.

    It adds to each row of logits what usually follows the likeliest token of the row before (a Markov chain of low
    rank). The library does so within the pass, so the rows depend on the context alone, as those of DFlash do.
    """


@Registered("eagle", Cost.PASS, Needs.HEAD, label="a trained head", place=5, file="an EAGLE-3 head")
class EagleDrafter(HeadDrafter):
    """A head in a file of its own that reads the inputs of three of the target's layers (EAGLE-3, arXiv 2503.01840)."""


@Registered("mtp", Cost.PASS, Needs.HEAD, label="the model's own head", place=6)
class MtpDrafter(HeadDrafter):
    """MTP layers in the target's own file, which read its last hidden state (DeepSeek-V3, arXiv 2412.19437)."""


@Registered("assistant", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a Gemma 4 assistant")
class AssistantDrafter(HeadDrafter):
    """Gemma 4's assistant, in a file of its own, which reads the target's last hidden state and its cache."""
