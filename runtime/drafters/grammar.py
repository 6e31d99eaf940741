"""Drafts what a grammar leaves no choice about: it costs nothing and is nearly always right.

Not always, because a model may cut the forced text into other tokens; the target decides, as about any draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.registry import Cost, Registered


@Registered(
    "grammar", Cost.GIVEN, label="the wanted format", colour="error", is_usual=True, place=3,
    unmeasured="it guesses only where a reply must have a form",
)  # fmt: skip
class GrammarDrafter(Drafter):
    """Proposes the forced tokens; nothing in a reply without a grammar."""

    is_model_free = True

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Takes part only in a reply with a grammar: nothing else forces tokens."""
        return has_grammar

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain of the tokens that must come next."""
        k, forced = 0, budget.forced()[: budget.max_k]
        while k < len(forced) and budget.should_continue(1.0):
            k += 1
        return Draft(forced[:k])
