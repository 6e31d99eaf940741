"""Drafts the tokens that a grammar forces. They cost nothing and are nearly always accepted.

A model may split the forced text into other tokens, so the target verifies them like any draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.registry import Cost, Registered


@Registered(
    "grammar", Cost.GIVEN, label="the required format", colour="error", is_usual=True, place=3,
    unmeasured="it drafts only where a format is required",
)  # fmt: skip
class GrammarDrafter(Drafter):
    """Proposes the tokens that the grammar forces; nothing in a reply without a grammar."""

    is_model_free = True

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Return whether the reply has a grammar: nothing else forces tokens."""
        return has_grammar

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a chain of the forced tokens."""
        k, forced = 0, budget.forced()[: budget.max_k]
        while k < len(forced) and budget.should_continue(1.0):
            k += 1
        return Draft(forced[:k])
