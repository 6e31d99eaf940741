"""One draft of what followed a text in several places: a chain, or a tree where branches are wanted.

Knows runs of token ids and how much each of them weighs; must not know where they were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from runtime.core.draft import Draft
from runtime.core.drafter import Budget

END = -1  # stands between texts that do not continue each other
GROWTH = 1.3  # weight of a match against that of one a token shorter
FIRST_DOUBT = 3.0 * GROWTH**2  # weight of "none of them", before a token is drafted: three matches of two tokens


def chain(runs: Sequence[Sequence[int]], weights: Sequence[float], budget: Budget) -> Draft:
    """What the most weight of the runs stands behind, token by token; runs that go on otherwise drop out."""
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
    """The nodes of the runs' trie whose whole path is likeliest, best first (SuffixDecoding, arXiv 2411.04975).

    The budget is asked about the trunk alone, the nodes along likeliest children: whoever cuts the tree behind one of
    them keeps what is at least as likely.
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
    """A node that may be added to a tree; the first in order is the likeliest."""

    impossibility: float  # less the chance of its whole path
    parent: int
    rank: int  # among its siblings
    token: int
    confidence: float  # given its parent
    members: tuple[int, ...]  # runs through it
    depth: int = 0  # tokens from the root to it


def sprouts(
    runs: Sequence[Sequence[int]], weights: Sequence[float], most: int, parent: Sprout, node: int
) -> list[Sprout]:
    """The likeliest children, at most so many, of what was added as `node`; the end of a run is none."""
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
    """The weight behind each token at `depth`, that of the newest run first."""
    votes: dict[int, float] = {}
    for run, weight in zip(runs, weights, strict=True):
        token = run[depth]
        votes[token] = votes.get(token, 0.0) + weight
    return votes
