"""Where the end of a text occurred before, and what most likely follows it: the index behind every drafter that looks
text up.

Hash chains as in zlib: a bucket holds the newest place of an n-gram, and each place knows the one before it. So tokens
are added and taken away at the end in constant time. Knows token ids; knows no context, no files and no controller.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush
from operator import mul
from typing import NamedTuple

import numpy as np

from runtime.core.draft import Draft, Tokens, common_prefix
from runtime.core.drafter import Budget

END = -1  # stands between texts that do not continue each other
ORDERS = (4, 2)  # lengths of the n-grams that are indexed, in the order in which they are looked up
MAX_MATCH = 16  # tokens; longer matches are taken for equally good
MAX_MATCHES = 8  # that are merged
MAX_PLACES = 32  # looked at for one n-gram: others may share its bucket
BULK = 64  # tokens from which numpy is faster
BUCKETS, SHIFT = 1 << 16, 16
MULTIPLIERS = (2654435761, 2246822519, 3266489917, 668265263)  # odd, without a pattern
GROWTH = 1.5  # weight of a match against that of one a token shorter
WEIGHTS = [GROWTH**length for length in range(MAX_MATCH + 1)]
FIRST_DOUBT = 3.0 * WEIGHTS[ORDERS[-1]]  # weight of "none of them", before a token is drafted
CHECKED = 1024  # tokens by which a context is known again while it only grows


def bucket_of(ngram: Sequence[int]) -> int:
    """The bucket in which an n-gram's chain begins."""
    total: int = sum(map(mul, ngram, MULTIPLIERS))
    return total >> SHIFT & BUCKETS - 1


class Chains:
    """The places where n-grams of one length end, newest first."""

    def __init__(self, order: int) -> None:
        self.order = order
        self._newest = array("i", [-1]) * BUCKETS
        self._before = array("i")  # by place, from the first on: the next older place in its bucket

    def add(self, tokens: array[int], first: int) -> None:
        """Takes in the n-grams that end after place `first`."""
        first = max(first, self.order - 1)
        if len(tokens) - first >= BULK:
            self._add_many(tokens, first)
            return
        order, recent = self.order, tokens[first + 1 - self.order :].tolist()
        for end in range(first + 1, len(tokens) + 1):
            bucket = bucket_of(recent[end - first - 1 : end - first - 1 + order])
            self._before.append(self._newest[bucket])
            self._newest[bucket] = end

    def _add_many(self, tokens: array[int], first: int) -> None:
        """Takes in many n-grams at once, with numpy."""
        recent, n = np.array(tokens[first + 1 - self.order :], dtype=np.int64), len(tokens) - first
        totals = np.zeros(n, dtype=np.int64)
        for i in range(self.order):
            totals += recent[i : i + n] * MULTIPLIERS[i]
        buckets = (totals >> SHIFT & BUCKETS - 1).astype(np.uint16)
        newest, ends = (
            np.frombuffer(self._newest, dtype=np.int32),
            np.arange(first + 1, len(tokens) + 1, dtype=np.int32),
        )
        before, by_bucket = newest[buckets], buckets.argsort(kind="stable")
        in_order = buckets[by_bucket]
        again = in_order[1:] == in_order[:-1]
        before[by_bucket[1:]] = np.where(again, ends[by_bucket[:-1]], before[by_bucket[1:]])
        newest[buckets] = ends  # where a bucket comes twice, the last one stays
        self._before.frombytes(before.tobytes())

    def take_back(self, tokens: array[int], n: int) -> None:
        """Forgets the n-grams that end after place `n`, newest first."""
        for end in range(len(tokens), max(n, self.order - 1), -1):
            self._newest[bucket_of(tokens[end - self.order : end])] = self._before.pop()

    def matches(self, tokens: array[int], tail: Sequence[int]) -> list[tuple[int, int]]:
        """(place after it, tokens that match) of where the end of `tail` occurred in `tokens`, newest first."""
        found: list[tuple[int, int]] = []
        before, order, n = self._before, self.order, len(tokens)
        backwards, at = tail[::-1], self._newest[bucket_of(tail[-order:])] if len(tail) >= order else -1
        for _ in range(MAX_PLACES):
            if at < 0 or len(found) == MAX_MATCHES:
                break
            length, most = 0, min(at, len(tail))
            while length < most and tokens[at - 1 - length] == backwards[length]:
                length += 1
            if length >= order and at < n:
                found.append((at, length))
            at = before[at - order]
        return found


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
        """The likeliest continuation of `tail`, as far as the budget goes; where branches are wanted, a tree.

        A token's confidence is the share of the matches' weight that stands behind it. Matches grow with every token
        that is drafted, so the doubt whether any of them goes on shrinks.
        """
        matches = self.find(tail)
        tokens, k, whole = self.tokens, budget.max_k, len(self.tokens) - budget.max_k
        runs = [tokens[at : at + k] if at <= whole else self._run(at, k) for at, _ in matches]
        weights = [WEIGHTS[length] for _, length in matches]
        return tree(runs, weights, budget) if budget.branches else chain(runs, weights, budget)

    def _run(self, at: int, n: int) -> array[int]:
        """The `n` tokens from place `at` on, as if the text repeated from there what it ends with."""
        return (self.tokens[at : at + n] * n)[:n]


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


def tail_of(context: Tokens) -> list[int]:
    """As much of the end of `context` [n] as a match may cover."""
    tail: list[int] = context[-MAX_MATCH:].tolist()
    return tail
