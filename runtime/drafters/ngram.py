"""Drafts by looking the last tokens up earlier in the context (prompt lookup; Saxena, 2023, and LLMA, arXiv 2304.04487).

Quoting, editing and code repeat themselves; a lookup costs microseconds. The index grows with the context and is mended, not rebuilt,
when the context's end was edited.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.draft import Budget, Draft, Drafter, Tokens
from runtime.drafters.lookup import Lookup, tail_of


class NgramDrafter(Drafter):
    """Proposes what followed the longest earlier matches of the context's end."""

    name = "ngram"
    is_free = True

    def __init__(self) -> None:
        self._lookup = Lookup()

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Takes the prompt in, whatever of it was edited."""
        self._lookup.become(context)

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """What most likely comes next: a chain, or a tree where branches are wanted; empty without a match."""
        self._lookup.follow(context)
        return self._lookup.draft(tail_of(context), budget)
