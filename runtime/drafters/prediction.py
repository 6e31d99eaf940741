"""Drafts from text that the caller expects in the reply, such as a file that an editor has the model change.

Knows token ids; knows no editor and no text.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import NO_DRAFT, Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.following import Follower, Followers
from runtime.drafters.registry import Cost, Needs, Registered
from runtime.drafters.renames import Spelling

GIVEN = 2  # tokens that are assumed to be aligned because the caller expects the text


@Registered(
    "prediction", Cost.GIVEN, Needs.SPELLING, label="the given file", colour="primary", is_usual=True, place=4,
    unmeasured="it drafts only from a text given with the request",
)  # fmt: skip
class PredictionDrafter(Drafter):
    """Proposes the continuation in the expected text."""

    is_model_free = True

    def __init__(self, spelling: Spelling | None = None) -> None:
        self._spelling = spelling
        self._followers = Followers()

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Return whether the caller expects any text in the reply."""
        return bool(expected)

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Begin a reply, which is assumed to start where the expected text does."""
        self._followers.add(Follower(context, expected, GIVEN, self._spelling))

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return a chain of the next tokens of the expected text; empty while the position is lost."""
        follower = self._followers.of(context)
        return follower.propose(context, budget) if follower else NO_DRAFT
