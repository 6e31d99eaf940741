"""Where the end of a text occurred before, and what most likely follows it: the index behind every drafter that looks
text up. Knows token ids; knows no context, no files and no controller.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens, common_prefix
from runtime.core.drafter import Budget
from runtime.drafters.chains import BULK, Chains
from runtime.drafters.merging import GROWTH, chain, tree

ORDERS = (4, 2)  # lengths of the n-grams that are indexed, in the order in which they are looked up
MAX_MATCH = 16  # tokens; longer matches are taken for equally good
WEIGHTS = [GROWTH**length for length in range(MAX_MATCH + 1)]
CHECKED = 1024  # tokens by which a context is known again while it only grows


class Lookup:
    """A text that grows and changes at its end, and where its n-grams occurred."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets the text."""
        self.tokens = array("i")
        self._chains = [Chains(order) for order in ORDERS]

    def add(self, tokens: Tokens) -> None:
        """Appends `tokens` [n] to the text."""
        first = len(self.tokens)
        self.tokens.frombytes(tokens.tobytes())
        for chains in self._chains:
            chains.add(self.tokens, first)

    def follow(self, context: Tokens) -> None:
        """Changes into `context` [n], which is what it was with more behind it, unless its last tokens or its length
        show otherwise.
        """
        n, first = len(self.tokens), max(0, len(self.tokens) - CHECKED)
        if n and n <= len(context) and self.tokens[first:].tobytes() == context[first:n].tobytes():
            self.add(context[n:])
        else:
            self.become(context)

    def become(self, context: Tokens) -> None:
        """Changes into `context` [n], keeping what both begin with."""
        kept = self._n_shared(context)
        if len(self.tokens) - kept > BULK:
            self.clear()
            kept = 0
        for chains in self._chains:
            chains.take_back(self.tokens, kept)
        del self.tokens[kept:]
        self.add(context[kept:])

    def n_to_unlearn(self, context: Tokens) -> int:
        """How many of its last tokens are not those of `context`."""
        return len(self.tokens) - self._n_shared(context)

    def goes_on_as(self, context: Tokens) -> bool:
        """Does `context` go on where it ends?"""
        n = len(self.tokens)
        return 0 < n <= len(context) and self.tokens[-1] == context[n - 1] and self._n_shared(context) == n

    def _n_shared(self, context: Tokens) -> int:
        """How many of its first tokens are those of `context`."""
        n = min(len(self.tokens), len(context))
        return common_prefix(np.frombuffer(self.tokens, dtype=np.int32, count=n), context) if n else 0

    def find(self, tail: Sequence[int]) -> list[tuple[int, int]]:
        """(place after it, tokens that match) of where the end of `tail` occurred, newest first; only those of the
        longest n-gram found.
        """
        return next((found for chains in self._chains if (found := chains.matches(self.tokens, tail))), [])

    def draft(self, tail: Sequence[int], budget: Budget) -> Draft:
        """The likeliest continuation of `tail`, as far as the budget goes; where branches are wanted, a tree."""
        return self.continued(self.find(tail), budget)

    def continued(self, matches: Sequence[tuple[int, int]], budget: Budget) -> Draft:
        """The likeliest continuation after what `find` found.

        A token's confidence is the share of the matches' weight that stands behind it. Matches grow with every token
        that is drafted, so the doubt whether any of them goes on shrinks.
        """
        tokens, k, whole = self.tokens, budget.max_k, len(self.tokens) - budget.max_k
        runs = [tokens[at : at + k] if at <= whole else self._run(at, k) for at, _ in matches]
        weights = [WEIGHTS[length] for _, length in matches]
        return tree(runs, weights, budget) if budget.branches else chain(runs, weights, budget)

    def _run(self, at: int, n: int) -> array[int]:
        """The `n` tokens from place `at` on, as if the text repeated from there what it ends with."""
        return (self.tokens[at : at + n] * n)[:n]


def tail_of(context: Tokens) -> list[int]:
    """As much of the end of `context` [n] as a match may cover."""
    tail: list[int] = context[-MAX_MATCH:].tolist()
    return tail
