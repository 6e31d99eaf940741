"""Index that finds earlier occurrences of the end of a text and drafts the likeliest continuation, for all lookup
drafters. Knows token ids; knows no files and no controller.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Draft, Tokens, common_prefix
from runtime.core.drafter import Budget
from runtime.drafters.chains import BULK, Chains

END = -1  # separator between unrelated texts
GROWTH = 1.3  # weight of a match relative to one that is a token shorter
FIRST_DOUBT = 3.0 * GROWTH**2  # weight of "none of them" at the first token: three matches of two tokens


def chain(runs: Sequence[Sequence[int]], weights: Sequence[float], budget: Budget) -> Draft:
    """Return the chain of the tokens with the most weight; runs with another token are dropped."""
    draft_tokens: list[int] = []
    total, doubt, should_continue = sum(weights), FIRST_DOUBT, budget.should_continue
    while runs and len(draft_tokens) < len(runs[0]):
        depth, token, support = len(draft_tokens), runs[0][len(draft_tokens)], total
        if len(runs) > 1 and len(votes := ballot(runs, weights, depth)) > 1:
            token = max(votes, key=votes.__getitem__)
            support = votes[token]
            runs, weights = zip(
                *[each for each in zip(runs, weights, strict=True) if each[0][depth] == token], strict=True
            )
        if token == END or not should_continue(support / (total + doubt)):
            break
        draft_tokens.append(token)
        total, doubt = support, doubt / GROWTH
    return Draft(tuple(draft_tokens))


def ballot(runs: Sequence[Sequence[int]], weights: Sequence[float], depth: int) -> dict[int, float]:
    """Return the weight of each token at `depth`, in the order of the runs, newest first."""
    votes: dict[int, float] = {}
    for run, weight in zip(runs, weights, strict=True):
        token = run[depth]
        votes[token] = votes.get(token, 0.0) + weight
    return votes


ORDERS = (4, 2)  # lengths of the indexed n-grams, in lookup order
MAX_MATCH = 16  # tokens; longer matches have the same weight
WEIGHTS = [GROWTH**length for length in range(MAX_MATCH + 1)]
CHECKED = 1024  # last tokens that are compared to recognize a context that only grew


class Lookup:
    """A text that grows and changes at its end, with an index of its n-grams."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Clear the text."""
        self.tokens = array("i")
        self._chains = [Chains(order) for order in ORDERS]

    def add(self, tokens: Tokens) -> None:
        """Append `tokens` [n] to the text."""
        first = len(self.tokens)
        self.tokens.frombytes(tokens.tobytes())
        for chains in self._chains:
            chains.add(self.tokens, first)

    def follow(self, context: Tokens) -> None:
        """Change the text into `context` [n]. If the text's last CHECKED tokens match, only the new tokens are added
        and the earlier ones are not compared.
        """
        n, first = len(self.tokens), max(0, len(self.tokens) - CHECKED)
        if n and n <= len(context) and self.tokens[first:].tobytes() == context[first:n].tobytes():
            self.add(context[n:])
        else:
            self.become(context)

    def become(self, context: Tokens) -> None:
        """Change the text into `context` [n], keeping the common prefix unless more than BULK tokens differ."""
        kept = self._n_shared(context)
        if len(self.tokens) - kept > BULK:
            self.clear()
            kept = 0
        for chains in self._chains:
            chains.take_back(self.tokens, kept)
        del self.tokens[kept:]
        self.add(context[kept:])

    def n_to_unlearn(self, context: Tokens) -> int:
        """Return the number of last tokens to remove before the text is a prefix of `context`."""
        return len(self.tokens) - self._n_shared(context)

    def is_prefix_of(self, context: Tokens) -> bool:
        """Return whether `context` begins with the whole text, which is not empty."""
        n = len(self.tokens)
        return 0 < n <= len(context) and self.tokens[-1] == context[n - 1] and self._n_shared(context) == n

    def _n_shared(self, context: Tokens) -> int:
        """Return the length of the common prefix with `context`."""
        n = min(len(self.tokens), len(context))
        return common_prefix(np.frombuffer(self.tokens, dtype=np.int32, count=n), context) if n else 0

    def find(self, tail: Sequence[int]) -> list[tuple[int, int]]:
        """Return (position after the match, matching tokens) of each match of the end of `tail`, newest first.

        Only the matches of the longest n-gram order with any match are returned.
        """
        return next((found for chains in self._chains if (found := chains.matches(self.tokens, tail))), [])

    def draft(self, tail: Sequence[int], budget: Budget) -> Draft:
        """Return the likeliest continuation of `tail` within the budget."""
        return self.continued(self.find(tail), budget)

    def continued(self, matches: Sequence[tuple[int, int]], budget: Budget) -> Draft:
        """Return the likeliest continuation of the `matches` from `find`.

        A token's confidence is its share of the weight of the matches plus a doubt that none of them continues. Matches
        grow with every drafted token, so the doubt shrinks.
        """
        tokens, k, whole = self.tokens, budget.max_k, len(self.tokens) - budget.max_k
        runs = [tokens[at : at + k] if at <= whole else self._run(at, k) for at, _ in matches]
        weights = [WEIGHTS[length] for _, length in matches]
        return chain(runs, weights, budget)

    def _run(self, at: int, n: int) -> array[int]:
        """Return `n` tokens from position `at` on; at the end of the text, the tokens since `at` are repeated."""
        return (self.tokens[at : at + n] * n)[:n]


def tail_of(context: Tokens) -> list[int]:
    """Return the last MAX_MATCH tokens of `context` [n], the most that a match may cover."""
    tail: list[int] = context[-MAX_MATCH:].tolist()
    return tail
