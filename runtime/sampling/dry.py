"""DRY, "don't repeat yourself": makes tokens that would continue a repetition less likely, the more the longer it is.

By p-e-w (text-generation-webui, pull request 5677), as llama.cpp and KoboldCpp have it. Knows token ids, and texts only
as the tokens that sequence breakers are made of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Logits, Tokens
from runtime.core.rare_sampling import MAX_BREAKER, RareSampling

MAX_TAIL = 20  # tokens of a sequence breaker after its first one
MAX_EXPONENT = 88.7228391  # natural logarithm of the largest float of 32 bits, which a penalty must not exceed
MAX_PENALTY = 1e15  # its square is still a float of 32 bits
BLOCK = 256  # tokens that are looked at together
MAX_COMPARED = 2**21  # pairs of tokens that are compared for one token of the reply
LAST = b"\xff" * 64  # behind the text of every token that begins alike
LEAST_BASE = 1.000001  # from which on a penalty grows with the length

Places = NDArray[np.int64]
Breakers = Mapping[int, Sequence[tuple[int, ...]]]  # by the first token, the tokens that follow it
NO_BREAKERS: Breakers = {}


class Dry:
    """The penalties of one reply."""

    def __init__(self, rare: RareSampling, breakers: Breakers) -> None:
        self._rare, self._breakers = rare, breakers
        self._longest = 0  # tokens by which a repetition may exceed the allowed length until its penalty is the largest
        if rare.dry_base > LEAST_BASE:
            self._longest = int(MAX_EXPONENT / math.log(rare.dry_base))

    def penalise(self, logits: Logits, recent: Tokens) -> None:
        """Apply the penalties after `recent` [n], the last `dry_penalty_last_n` tokens, to `logits` in place."""
        for token, length in self._lengths(recent).items():
            if token < len(logits) and () not in self._breakers.get(token, ()):
                grown = self._rare.dry_base ** (length - self._rare.dry_allowed_length)
                logits[token] -= min(self._rare.dry_multiplier * grown, MAX_PENALTY)

    def _lengths(self, recent: Tokens) -> dict[int, int]:
        """Return for each token that would continue a repetition of the allowed length or more that length, at most
        the one from which on penalties are equal.
        """
        allowed = self._rare.dry_allowed_length
        places = repeated(recent, allowed)
        if not len(places) or (most := self._limit(recent)) < allowed:
            return {}
        lengths = lengths_of(recent, places, allowed, min(most, allowed + self._longest))
        order = lengths.argsort()  # so that of a token's lengths the largest is taken
        return dict(zip(recent[places[order]].tolist(), lengths[order].tolist(), strict=True))

    def _limit(self, recent: Tokens) -> int:
        """Return the number of tokens after the last sequence breaker, or of all."""
        for at, token in backwards(recent) if self._breakers else ():
            if tails := self._breakers.get(token):
                after = tuple(recent[at + 1 : at + 1 + MAX_TAIL].tolist())
                if fitting := [len(tail) for tail in tails if tail == after[: len(tail)]]:
                    return len(recent) - at - 1 - max(fitting)
        return len(recent)


def backwards(tokens: Tokens) -> Iterator[tuple[int, int]]:
    """Yield the places and tokens from the last one on, of which few are usually asked for."""
    for end in range(len(tokens), 0, -BLOCK):
        begin = max(0, end - BLOCK)
        yield from zip(range(end - 1, begin - 1, -1), tokens[begin:end][::-1].tolist(), strict=True)


def repeated(tokens: Tokens, length: int) -> Places:
    """Return the places [n] after earlier occurrences of the last `length` tokens."""
    n = len(tokens)
    places = (tokens[:-1] == tokens[-1]).nonzero()[0] + 1 if n and length else np.arange(1, n)
    for back in range(2, length + 1):
        if len(places) and places[0] < back:
            places = places[1:]
        if not len(places):
            break
        places = places[tokens[places - back] == tokens[n - back]]
    return places


def lengths_of(tokens: Tokens, places: Places, least: int, most: int) -> Places:
    """Return how many of the last tokens, from `least` to `most`, are before each of the `places` [n].

    Where a text repeats itself at thousands of places, fewer tokens than `most` are compared: other replies wait.
    """
    n, lengths, alive = len(tokens), np.full(len(places), least), np.arange(len(places))
    most = min(most, least + MAX_COMPARED // len(places))
    for length in range(least, most, BLOCK):
        further = np.arange(length + 1, min(length + BLOCK, most) + 1)
        before = places[alive, None] - further
        is_same = (tokens[before] == tokens[n - further]) & (before >= 0)
        n_more = np.logical_and.accumulate(is_same, axis=1).sum(axis=1)
        lengths[alive] += n_more
        alive = alive[n_more == len(further)]
        if not len(alive):
            break
    return lengths


class SpelledTokens:
    """The texts of all tokens [n_vocab], searched by what they contain and by what they end with."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._all = b"".join(pieces)
        self._ends = np.cumsum([len(piece) for piece in pieces])  # of each in `_all`
        backwards = sorted((piece[::-1], token) for token, piece in enumerate(pieces))
        self._reversed, self._tokens = [text for text, _ in backwards], [token for _, token in backwards]

    def containing(self, text: bytes) -> Iterator[int]:
        """Yield the tokens that contain a text."""
        at = self._all.find(text)
        while at >= 0:
            token = int(self._ends.searchsorted(at, side="right"))
            if at + len(text) <= self._ends[token]:
                yield token
                at = int(self._ends[token]) - 1
            at = self._all.find(text, at + 1)

    def ending_with(self, text: bytes) -> Sequence[int]:
        """Return the tokens that end with a text."""
        first = text[::-1]
        begin = bisect_left(self._reversed, first)
        return self._tokens[begin : bisect_left(self._reversed, first + LAST, begin)]


def breakers_of(texts: Sequence[str], spelled: SpelledTokens, encode: Callable[[bytes], Sequence[int]]) -> Breakers:
    """Return the sequence breakers as tokens: a token that has one in its text, or that ends with the beginning of one,
    followed by the tokens of the rest.
    """
    found = dict[int, list[tuple[int, ...]]]()
    for text in [text.encode()[:MAX_BREAKER] for text in texts]:
        whole = set(spelled.containing(text))
        for token in whole:
            found.setdefault(token, []).append(())
        for n in range(1, len(text)):
            if tokens := [token for token in spelled.ending_with(text[:n]) if token not in whole]:
                tail = tuple(encode(text[n:])[:MAX_TAIL])
                for token in tokens:
                    found.setdefault(token, []).append(tail)
    return {token: list(dict.fromkeys(tails)) for token, tails in found.items()}
