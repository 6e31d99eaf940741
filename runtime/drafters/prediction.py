"""Drafts from text that the caller expects back, such as an editor's file of which the reply is a changed copy.

Knows token ids; knows no editor and no text.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import NO_DRAFT, Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.following import Follower, Followers
from runtime.drafters.registry import Cost, Registered

GIVEN = 2  # tokens in step that the caller's word is worth


@Registered(
    "prediction", Cost.GIVEN, label="the given file", colour="primary", is_usual=True, place=4,
    unmeasured="it guesses only where the reply is known beforehand",
)  # fmt: skip
class PredictionDrafter(Drafter):
    """Proposes how the expected text goes on."""

    is_model_free = True

    def __init__(self) -> None:
        self._followers = Followers()

    def takes_part(self, expected: Sequence[int], has_grammar: bool) -> bool:
        """Takes part only in a reply of which something is expected."""
        return bool(expected)

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """The reply starts where the expected text does, until its tokens show otherwise."""
        self._followers.add(Follower(context, expected, GIVEN))

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain of what comes next in the expected text; empty while the place is lost."""
        follower = self._followers.of(context)
        return follower.propose(context, budget) if follower else NO_DRAFT
