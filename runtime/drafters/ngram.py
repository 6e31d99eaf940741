"""Drafts by looking the last tokens up earlier in the context (prompt lookup; Saxena, 2023, and LLMA, arXiv 2304.04487).

Quoting, editing and code repeat themselves; a lookup costs microseconds. The index grows with the context and is mended, not rebuilt,
when the context was edited.
"""

from __future__ import annotations

import numpy as np

from runtime.draft import NO_DRAFT, Budget, Draft, Drafter, Tokens

MIN_MATCH, MAX_MATCH = 2, 4
CONFIDENCE = {2: 0.4, 3: 0.6, 4: 0.8}  # before the controller has seen how often a match of that length is right


class NgramDrafter(Drafter):
    """Proposes what followed the most recent, longest earlier match of the context's end."""

    name = "ngram"
    is_free = True

    def __init__(self) -> None:
        self._indexed: Tokens = np.zeros(0, dtype=np.int32)
        self._n = 0  # tokens whose n-grams are in the index
        # n-gram -> where its continuation starts, newest last
        self._where: dict[tuple[int, ...], list[int]] = {}

    def propose(self, context: Tokens, budget: Budget) -> Draft:
        """A chain of what came next the last time; empty without a match."""
        self._update(context)
        n = len(context)
        tail = tuple(context[-MAX_MATCH:].tolist())
        for length in range(min(MAX_MATCH, len(tail)), MIN_MATCH - 1, -1):
            places = self._where.get(tail[-length:])
            start = next((at for at in reversed(places) if at < n), None) if places else None
            if start is not None:
                return self._chain(context, start, CONFIDENCE[length], budget)
        return NO_DRAFT

    def _chain(self, context: Tokens, start: int, confidence: float, budget: Budget) -> Draft:
        """The tokens from `start`, as many as the budget allows; a match that reaches the end repeats itself."""
        k = 0
        while k < budget.max_k and budget.go_on(confidence):
            k += 1
        found = context[start : start + k].tolist()
        while found and len(found) < k:
            found.append(found[len(found) - (len(context) - start)])
        return Draft(tuple(found[:k])) if found else NO_DRAFT

    def _update(self, context: Tokens) -> None:
        """Brings the index up to `context`, forgetting what stands no more."""
        shared = min(self._n, len(context))
        same = self._indexed[:shared] == context[:shared]
        kept = shared if same.all() else int(same.argmin())
        if kept < self._n:
            self._forget(kept)
        if len(context) > len(self._indexed):
            grown = np.zeros(2 * len(context), dtype=np.int32)
            grown[: self._n] = self._indexed[: self._n]
            self._indexed = grown
        self._indexed[kept : len(context)] = context[kept:]
        self._add(context[max(0, kept - MAX_MATCH) :].tolist(), max(0, kept - MAX_MATCH), kept)
        self._n = len(context)

    def _add(self, tokens: list[int], first: int, kept: int) -> None:
        """Indexes the n-grams that end after position `kept`; tokens[0] stands at position `first`."""
        for end in range(kept - first + 1, len(tokens) + 1):
            for length in range(MIN_MATCH, min(MAX_MATCH, end) + 1):
                self._where.setdefault(tuple(tokens[end - length : end]), []).append(first + end)

    def _forget(self, kept: int) -> None:
        """Takes the n-grams that end after position `kept` out of the index."""
        old = self._indexed[: self._n].tolist()
        for end in range(self._n, kept, -1):
            for length in range(MIN_MATCH, min(MAX_MATCH, end) + 1):
                key = tuple(old[end - length : end])
                places = self._where[key]
                places.pop()
                if not places:
                    del self._where[key]
        self._n = kept
