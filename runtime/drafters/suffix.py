"""Drafts by looking the last tokens up in past replies, kept on disk (SuffixDecoding, arXiv 2411.04975, over an n-gram
index).

People ask again, regenerate and go on with what they had; then much of a reply was said before. Learns each reply,
together with the few tokens before it, by which its beginning is found. Knows token ids; where they are kept is the
store's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.lookup import Lookup, tail_of
from runtime.drafters.merging import END
from runtime.drafters.registry import Cost, Needs, Registered
from runtime.drafters.reply_store import Replies

LEAD = 16  # tokens before a reply that are kept with it
SHORTEST = 4  # tokens of a reply that is worth keeping
LARGEST = 4  # replies so long that they fill the store; of a longer one the beginning is kept


@Registered(
    "suffix", Cost.LOOKUP, Needs.REPLIES, label="earlier replies", colour="success", place=9,
    unmeasured="it repeats past replies, and a benchmark asks for the same ones again and again",
)  # fmt: skip
class SuffixDrafter(Drafter):
    """Proposes what followed the longest matches of the context's end in past replies."""

    is_model_free = must_earn = True

    def __init__(self, store: Replies) -> None:
        self._store = store
        self._lookup = Lookup()
        self._known: set[bytes] = set()

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Takes in what was kept, by other processes as well; forgets what was wiped."""
        if self._store.has_changed() or len(self._lookup.tokens) > self._store.max_tokens:
            self._lookup.clear()
            self._known.clear()
            self._learn(self._store.read())

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """What most likely comes next: a chain, or a tree where branches are wanted; empty without a match."""
        return self._lookup.draft(tail_of(context), budget)

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """Learns the reply, unless it is known word for word."""
        reply = context[max(0, n_prompt - LEAD) :][: self._store.max_tokens // LARGEST]
        if len(context) - n_prompt >= SHORTEST and reply.tobytes() not in self._known:
            self._store.append(reply)
            self._learn([reply])

    def _learn(self, replies: Sequence[Tokens]) -> None:
        """Makes replies known to the lookup, all at once."""
        self._known.update(reply.tobytes() for reply in replies)
        between = np.array([END], dtype=np.int32)
        self._lookup.add(
            np.concatenate([part for reply in replies for part in (reply, between)], dtype=np.int32)
            if replies
            else between[:0]
        )
