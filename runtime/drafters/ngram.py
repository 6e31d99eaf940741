"""Drafts by looking up the last tokens earlier in the context (prompt lookup; Saxena, 2023, and LLMA, arXiv
2304.04487).

Quotes, edits and code repeat the context, and a lookup costs microseconds. The index grows with the context. It is
updated, not rebuilt, when the end of the context was edited.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.chains import BULK
from runtime.drafters.following import TRUSTED, Follower, Followers
from runtime.drafters.lookup import Lookup, tail_of
from runtime.drafters.registry import Cost, Needs, Registered
from runtime.drafters.renames import Spelling

MAX_CONVERSATIONS = 12  # conversations that are indexed


@Registered(
    "ngram", Cost.LOOKUP, Needs.SPELLING, label="earlier text of this chat", colour="success", is_usual=True, place=2
)
class NgramDrafter(Drafter):
    """Proposes the tokens that followed the longest earlier matches of the context's end."""

    is_model_free = True

    def __init__(self, spelling: Spelling | None = None) -> None:
        self._spelling = spelling
        self._lookups = [Lookup()]  # one for each conversation, the latest last
        self._is_elsewhere = False  # whether a conversation, perhaps another one, was resumed
        self._followers = Followers()  # replies that may be edited copies of their prompts

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Index the prompt, including any edits to earlier turns."""
        self._switch_to(context, BULK)
        self._followers.add(Follower(context, context, spelling=self._spelling))

    def resume(self, context: Tokens) -> None:
        """Switch to the conversation of `context` at the next proposal."""
        self._is_elsewhere = True

    def _switch_to(self, context: Tokens, most: int) -> None:
        """Switch to the conversation with the fewest tokens to remove, or to a new one if that is more than `most`."""
        best = next((lookup for lookup in self._lookups if lookup.is_prefix_of(context)), None)
        if best is None:
            best = min(reversed(self._lookups), key=lambda lookup: lookup.n_to_unlearn(context))
            if best.n_to_unlearn(context) > most:
                best = Lookup() if len(self._lookups) < MAX_CONVERSATIONS else self._lookups[0]
        self._lookups = [*(lookup for lookup in self._lookups if lookup is not best), best]
        best.become(context)
        self._is_elsewhere = False

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return the likeliest continuation; empty without a match."""
        if self._is_elsewhere:
            self._switch_to(context, 0)  # sequences of one batch may begin alike
        else:
            self._lookups[-1].follow(context)
        lookup, follower = self._lookups[-1], self._followers.of(context)
        matches = lookup.find(tail_of(context))
        if follower is not None:
            follower.follow(context)
            if follower.n_in_step >= max([TRUSTED, *(length for _, length in matches)]):
                return follower.propose(context, budget)
        return lookup.continued(matches, budget)
