"""Drafts from a DFlash head in a file of its own (Chen et al., arXiv 2602.06036): a block of tokens from one pass.

The whole block comes from one pass, so the stopping criterion only decides how many of its tokens to verify.
"""

from __future__ import annotations

from runtime.core.draft import NO_DRAFT, Tokens
from runtime.core.drafter import Budget, Drafting, Pick
from runtime.drafters.head import HeadDrafter
from runtime.drafters.model import as_draft, take
from runtime.drafters.registry import Cost, Needs, Registered


@Registered("dflash", Cost.PASS, Needs.HEAD, label="a trained head", place=7, file="a DFlash head")
class DflashDrafter(HeadDrafter):
    """A head whose backend returns independent rows of logits, one for each token of a block."""

    has_passes = False

    def drafting(self, context: Tokens, budget: Budget) -> Drafting:
        """Draft a chain of the block's first tokens; empty where the target's hidden states are not known."""
        if not self._head.knows(context):
            return NO_DRAFT
        picks: list[Pick] = []
        for row in (yield context)[: budget.max_k]:
            if not take(row[: self.n_vocab], budget, picks):
                break
        return as_draft(picks, budget.max_k)
