"""Index of the end positions of n-grams of one length, newest first.

Hash chains as in zlib: a bucket holds the newest position of an n-gram, and each position links to the one before it.
Tokens are added and removed at the end in constant time. Knows token ids and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import mul

import numpy as np

MAX_MATCHES = 8  # matches that are merged
MAX_PLACES = 32  # positions examined for one n-gram, because others may share its bucket
BULK = 64  # number of tokens from which numpy is faster
BUCKETS, SHIFT = 1 << 16, 16
MULTIPLIERS = (2654435761, 2246822519, 3266489917, 668265263)  # odd hash multipliers without a pattern


def bucket_of(ngram: Sequence[int]) -> int:
    """Return the bucket in which an n-gram's chain begins."""
    total: int = sum(map(mul, ngram, MULTIPLIERS))
    return total >> SHIFT & BUCKETS - 1


class Chains:
    """The end positions of n-grams of one length, newest first."""

    def __init__(self, order: int) -> None:
        self.order = order
        self._newest = array("i", [-1]) * BUCKETS
        self._before = array("i")  # by position, from the first one on: the next older position in its bucket

    def add(self, tokens: array[int], first: int) -> None:
        """Add the n-grams that end after position `first`."""
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
        """Add many n-grams in one call, with numpy."""
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
        newest[buckets] = ends  # where a bucket occurs twice, the last one remains
        self._before.frombytes(before.tobytes())

    def take_back(self, tokens: array[int], n: int) -> None:
        """Remove the n-grams that end after position `n`, newest first."""
        for end in range(len(tokens), max(n, self.order - 1), -1):
            self._newest[bucket_of(tokens[end - self.order : end])] = self._before.pop()

    def matches(self, tokens: array[int], tail: Sequence[int]) -> list[tuple[int, int]]:
        """Return (position after the match, matching tokens) of each match of the end of `tail`, newest first."""
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
