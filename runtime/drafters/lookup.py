"""Where the end of a text occurred before, and what most likely follows it: the index behind every drafter that looks text up.

Hash chains as in zlib: a bucket holds the newest place of an n-gram, and each place knows the one before it. So tokens are added and taken
away at the end in constant time. Knows token ids; knows no context, no files and no controller.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import mul

import numpy as np

from runtime.draft import Budget, Draft, Tokens

END = -1  # stands between texts that do not continue each other
ORDERS = (4, 2)  # lengths of the n-grams that are indexed, in the order in which they are looked up
MAX_MATCH = 16  # tokens; longer matches are taken for equally good
MAX_MATCHES = 8  # that are merged
MAX_PLACES = 32  # looked at for one n-gram: others may share its bucket
BULK = 64  # tokens from which numpy is faster
BUCKETS, SHIFT = 1 << 16, 16
MULTIPLIERS = (2654435761, 2246822519, 3266489917, 668265263)  # odd, without a pattern
GROWTH = 1.5  # weight of a match against that of one a token shorter
DOUBT = 3.0  # weight of "none of them", against a match of the shortest n-gram


def bucket_of(ngram: Sequence[int]) -> int:
    """Where an n-gram's chain begins."""
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
        for end in range(first + 1, len(tokens) + 1):
            bucket = bucket_of(tokens[end - self.order : end])
            self._before.append(self._newest[bucket])
            self._newest[bucket] = end

    def _add_many(self, tokens: array[int], first: int) -> None:
        """The same, at once."""
        recent, n = np.array(tokens[first + 1 - self.order :], dtype=np.int64), len(tokens) - first
        totals = np.zeros(n, dtype=np.int64)
        for i in range(self.order):
            totals += recent[i : i + n] * MULTIPLIERS[i]
        buckets = (totals >> SHIFT & BUCKETS - 1).astype(np.uint16)
        newest, ends = np.frombuffer(self._newest, dtype=np.int32), np.arange(first + 1, len(tokens) + 1, dtype=np.int32)
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

    def places(self, tail: array[int]) -> list[int]:
        """Where the end of `tail` may have occurred, newest first."""
        found, before, order = list[int](), self._before, self.order
        at = self._newest[bucket_of(tail[-order:])] if len(tail) >= order else -1
        while at >= 0 and len(found) < MAX_PLACES:
            found.append(at)
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
        """Goes on with `tokens` [n]."""
        first = len(self.tokens)
        self.tokens.frombytes(tokens.tobytes())
        for chains in self._chains:
            chains.add(self.tokens, first)

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

    def _n_shared(self, context: Tokens) -> int:
        """How many of its first tokens are those of `context`."""
        n = min(len(self.tokens), len(context))
        if not n:
            return 0
        same = np.frombuffer(self.tokens, dtype=np.int32, count=n) == context[:n]
        first = int(same.argmin())
        return n if same[first] else first

    def find(self, tail: array[int]) -> list[tuple[int, int]]:
        """(place after it, tokens that match) of where the end of `tail` occurred, newest first; only those of the longest n-gram found."""
        tokens, n = self.tokens, len(self.tokens)
        for chains in self._chains:
            matches: list[tuple[int, int]] = []
            for at in chains.places(tail):
                if at < n and tokens[at - 1] == tail[-1] and (length := self._length(at, tail)) >= chains.order:
                    matches.append((at, length))
                    if len(matches) == MAX_MATCHES:
                        break
            if matches:
                return matches
        return []

    def _length(self, at: int, tail: array[int]) -> int:
        """How many tokens before place `at` equal the end of `tail`."""
        tokens, most = self.tokens, min(at, len(tail))
        for back in range(1, most + 1):
            if tokens[at - back] != tail[-back]:
                return back - 1
        return most

    def draft(self, tail: array[int], budget: Budget) -> Draft:
        """The likeliest continuation of `tail`, as far as the budget goes.

        A token's confidence is the share of the matches' weight that stands behind it. Matches grow with every token that is drafted, so the
        doubt whether any of them goes on shrinks.
        """
        matches, said = self.find(tail), list[int]()
        runs, weights = [self._run(at, budget.max_k) for at, _ in matches], [GROWTH**length for _, length in matches]
        total, doubt = sum(weights), DOUBT * GROWTH ** ORDERS[-1]
        while runs and len(said) < budget.max_k:
            following = [run[len(said)] for run in runs]
            token, support = following[0], total
            if following.count(token) < len(following):
                token, support = elect(following, weights)
            if token == END or not budget.go_on(support / (total + doubt)):
                break
            said.append(token)
            if support < total:
                agreeing = [i for i, follower in enumerate(following) if follower == token]
                runs, weights, total = [runs[i] for i in agreeing], [weights[i] for i in agreeing], support
            doubt /= GROWTH
        return Draft(tuple(said))

    def _run(self, at: int, n: int) -> array[int]:
        """The `n` tokens from place `at` on, as if the text repeated from there what it ends with."""
        run = self.tokens[at : at + n]
        return run if len(run) == n else (run * n)[:n]


def elect(tokens: Sequence[int], weights: Sequence[float]) -> tuple[int, float]:
    """The token with the most weight behind it, the first of several, and that weight."""
    votes: dict[int, float] = {}
    for token, weight in zip(tokens, weights, strict=True):
        votes[token] = votes.get(token, 0.0) + weight
    token = max(votes, key=votes.__getitem__)
    return token, votes[token]


def tail_of(context: Tokens) -> array[int]:
    """As much of the end of `context` [n] as a match may cover."""
    return array("i", context[-MAX_MATCH:].tobytes())
