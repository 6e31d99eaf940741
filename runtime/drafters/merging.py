"""Merges several continuations of a text into one draft: a chain, or a tree if the budget has branches.

Knows runs of token ids and their weights; must not know where they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

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


def tree(runs: Sequence[Sequence[int]], weights: Sequence[float], budget: Budget) -> Draft:
    """Return the nodes of the runs' trie with the likeliest paths, best first (SuffixDecoding, arXiv 2411.04975).

    The stopping criterion is applied only to the trunk, the nodes along likeliest children. Cutting the tree after a
    trunk node keeps the nodes that are at least as likely.
    """
    tokens, parents, trunk = list[int](), list[int](), -1
    waiting = (
        sprouts(runs, weights, 1 + budget.branches, Sprout(-1.0, -1, 0, END, 1.0, tuple(range(len(runs)))), -1)
        if runs
        else []
    )
    while waiting and len(tokens) < budget.max_k:
        best = heappop(waiting)
        if (best.parent, best.rank) == (trunk, 0):
            if not budget.should_continue(best.confidence):
                break
            trunk = len(tokens)
        tokens.append(best.token)
        parents.append(best.parent)
        for sprout in sprouts(runs, weights, 1 + budget.branches, best, len(tokens) - 1):
            heappush(waiting, sprout)
    return Draft(tuple(tokens), tuple(parents))


class Sprout(NamedTuple):
    """A candidate node of a tree. Sprouts sort by likelihood, likeliest first."""

    impossibility: float  # minus the probability of its whole path
    parent: int
    rank: int  # among its siblings
    token: int
    confidence: float  # given its parent
    members: tuple[int, ...]  # runs through it
    depth: int = 0  # tokens from the root to it


def sprouts(
    runs: Sequence[Sequence[int]], weights: Sequence[float], most: int, parent: Sprout, node: int
) -> list[Sprout]:
    """Return the likeliest children, at most `most`, of the tree node `node`, which was the sprout `parent`."""
    depth = parent.depth
    if depth == len(runs[0]):
        return []
    votes = ballot([runs[i] for i in parent.members], [weights[i] for i in parent.members], depth)
    total, found = sum(votes.values()) + FIRST_DOUBT / GROWTH**depth, list[Sprout]()
    for rank, token in enumerate(sorted(votes, key=votes.__getitem__, reverse=True)[:most]):
        members, confidence = tuple(i for i in parent.members if runs[i][depth] == token), votes[token] / total
        found.append(Sprout(parent.impossibility * confidence, node, rank, token, confidence, members, depth + 1))
    return [sprout for sprout in found if sprout.token != END]


def ballot(runs: Sequence[Sequence[int]], weights: Sequence[float], depth: int) -> dict[int, float]:
    """Return the weight of each token at `depth`, in the order of the runs, newest first."""
    votes: dict[int, float] = {}
    for run, weight in zip(runs, weights, strict=True):
        token = run[depth]
        votes[token] = votes.get(token, 0.0) + weight
    return votes
