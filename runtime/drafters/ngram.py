"""Drafts by looking the last tokens up earlier in the context (prompt lookup; Saxena, 2023, and LLMA, arXiv
2304.04487).

Quoting, editing and code repeat themselves; a lookup costs microseconds. The index grows with the context and is
mended, not rebuilt, when the context's end was edited.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.chains import BULK
from runtime.drafters.following import TRUSTED, Follower, Followers
from runtime.drafters.lookup import Lookup, tail_of
from runtime.drafters.registry import Cost, Registered

MOST = 12  # conversations that are remembered


@Registered("ngram", Cost.LOOKUP, label="what this chat has said", colour="success", is_usual=True, place=2)
class NgramDrafter(Drafter):
    """Proposes what followed the longest earlier matches of the context's end."""

    is_model_free = must_earn = True

    def __init__(self) -> None:
        self._lookups = [Lookup()]  # of conversations, the last one last
        self._is_elsewhere = False  # has a conversation been resumed, which may be another one?
        self._followers = Followers()  # of prompts, of which replies may be changed copies

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Takes the prompt in, whatever of it was edited."""
        self._go_on(context, BULK)
        self._followers.add(Follower(context, context))

    def resume(self, context: Tokens) -> None:
        """Goes on with that conversation, as soon as it is asked."""
        self._is_elsewhere = True

    def _go_on(self, context: Tokens, most: int) -> None:
        """With the conversation that has least to unlearn, or with a new one where that is more than `most` tokens."""
        best = next((lookup for lookup in self._lookups if lookup.goes_on_as(context)), None)
        if best is None:
            best = min(reversed(self._lookups), key=lambda lookup: lookup.n_to_unlearn(context))
            if best.n_to_unlearn(context) > most:
                best = Lookup() if len(self._lookups) < MOST else self._lookups[0]
        self._lookups = [*(lookup for lookup in self._lookups if lookup is not best), best]
        best.become(context)
        self._is_elsewhere = False

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """What most likely comes next: a chain, or a tree where branches are wanted; empty without a match."""
        if self._is_elsewhere:
            self._go_on(context, 0)  # replies that are made together may begin alike
        else:
            self._lookups[-1].follow(context)
        lookup, follower = self._lookups[-1], self._followers.of(context)
        matches = lookup.find(tail_of(context))
        if follower is not None:
            follower.follow(context)
            if follower.n_in_step >= max([TRUSTED, *(length for _, length in matches)]):
                return follower.propose(context, budget)
        return lookup.continued(matches, budget)
