"""Merges several continuations of a text into one draft.

Knows runs of token ids and their weights; must not know where they were found.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.core.draft import Draft
from runtime.core.drafter import Budget

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
