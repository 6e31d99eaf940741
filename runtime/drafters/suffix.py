"""Drafts by looking up the last tokens in past replies on disk (SuffixDecoding, arXiv 2411.04975, over an n-gram
index).

Users repeat requests, regenerate and continue earlier work, and then replies repeat past ones. Each reply is stored
with the few tokens before it, so that its beginning can be found. Knows token ids; the store knows the files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens
from runtime.core.drafter import Budget, Drafter
from runtime.drafters.lookup import END, Lookup, tail_of
from runtime.drafters.registry import Cost, Needs, Registered
from runtime.drafters.reply_store import Replies

LEAD = 16  # tokens before a reply that are kept with it
SHORTEST = 4  # tokens of the shortest reply that is stored
LARGEST = 4  # replies of the maximum length that fill the store; of a longer reply only the beginning is stored


@Registered(
    "suffix", Cost.LOOKUP, Needs.REPLIES, label="earlier replies", colour="success", place=9,
    unmeasured="it drafts from past replies, and a benchmark repeats the same prompts",
)  # fmt: skip
class SuffixDrafter(Drafter):
    """Proposes the tokens that followed the longest matches of the context's end in past replies."""

    is_model_free = True

    def __init__(self, store: Replies) -> None:
        self._store = store
        self._lookup = Lookup()
        self._known: set[bytes] = set()

    def begin(self, context: Tokens, expected: Sequence[int]) -> None:
        """Load the stored replies again if another process changed them or the index has grown too large."""
        if self._store.has_changed() or len(self._lookup.tokens) > self._store.max_tokens:
            self._lookup.clear()
            self._known.clear()
            self._learn(self._store.read())

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """Return the likeliest continuation; empty without a match."""
        return self._lookup.draft(tail_of(context), budget)

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """Store and index the reply, unless the very same one is known."""
        reply = context[max(0, n_prompt - LEAD) :][: self._store.max_tokens // LARGEST]
        if len(context) - n_prompt >= SHORTEST and reply.tobytes() not in self._known:
            self._store.append(reply)
            self._learn([reply])

    def _learn(self, replies: Sequence[Tokens]) -> None:
        """Add replies to the index in one call."""
        self._known.update(reply.tobytes() for reply in replies)
        between = np.array([END], dtype=np.int32)
        self._lookup.add(
            np.concatenate([part for reply in replies for part in (reply, between)], dtype=np.int32)
            if replies
            else between[:0]
        )
