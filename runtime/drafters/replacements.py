"""Learns the replacements that a reply makes in a copied source, and expects them again, as when a name is changed
throughout a file. Also tracks the position in the source. Knows token ids; knows no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CONFIRMED = 2  # aligned tokens after a difference before it is learned as a replacement
BEFORE = 2  # tokens before a difference that are learned with it, so that insertions can be learned too
LIKELY = 0.6  # probability of a replacement from which it is drafted
MAX_ALTERNATIVES = 8  # replacements kept for the same first token


@dataclass(slots=True)
class Replacement:
    """Source tokens, the reply's tokens in their place, and how often this replacement was right or wrong."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    n_right: int = 1
    n_wrong: int = 0

    @property
    def chance(self) -> float:
        """Probability that it applies at the next occurrence."""
        return (self.n_right + 1) / (self.n_right + self.n_wrong + 2)


class Replacements:
    """The replacements learned so far."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[Replacement]] = {}  # by the first replaced token, the longest first

    def learn(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Add a replacement of one or more tokens; a known replacement of the same tokens by others counts as wrong."""
        if not old or old == new:
            return
        known = self._by_first.setdefault(old[0], [])
        before = next((each for each in known if each.old == old), None)
        if before is None:
            if len(known) == MAX_ALTERNATIVES:
                known.remove(min(known, key=lambda each: each.chance))
            known.append(Replacement(old, new))
            known.sort(key=lambda each: -len(each.old))
        elif before.new == new:
            before.n_right += 1
        else:
            before.new, before.n_right, before.n_wrong = new, 1, before.n_wrong + 1

    def expect(self, found: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> None:
        """Add those replacements of tokens by others whose tokens have none yet."""
        for old, new in found:
            if all(each.old != old for each in self._by_first.get(old[0], ())):
                self.learn(old, new)

    def at(self, source: array[int], place: int) -> Iterator[Replacement]:
        """Yield the replacements whose old tokens the source has at a position, the longest first."""
        for each in self._by_first.get(source[place], ()) if place < len(source) else ():
            if tuple(source[place : place + len(each.old)]) == each.old:
                yield each

    def likely(self, source: array[int], place: int) -> Replacement | None:
        """Return the expected replacement at a position before the source's end, or None."""
        if source[place] not in self._by_first:
            return None
        return next((each for each in self.at(source, place) if each.chance >= LIKELY), None)


class SourcePlace:
    """The position of a copy in its source, possibly within a replacement."""

    def __init__(self, source: array[int], replacements: Replacements) -> None:
        self.source, self.replacements = source, replacements
        self.at = 0  # in the source
        self._within: Replacement | None = None  # the replacement at `at` that the reply has begun
        self._n_generated = 0  # tokens of it in the reply so far

    def go_to(self, at: int) -> None:
        """Go to a position in the source."""
        self.at, self._within, self._n_generated = at, None, 0

    def take(self, token: int) -> bool:
        """Advance by a token of the reply. Return whether the token fits the copy at this position."""
        if self._within is not None:
            if self._within.new[self._n_generated] == token:
                return self._finish()
            if not self._declined():
                return False
        for each in self.replacements.at(self.source, self.at):
            if each.new and each.new[0] == token and (each.chance >= LIKELY or self._next != token):
                self._within = each
                return self._finish()
        if self._next == token:
            if expected := self._expected:
                expected.n_wrong += 1
            self.at += 1
            return True
        while (expected := self._expected) and not expected.new:  # a deletion
            self.at += len(expected.old)
            if self._next == token:
                self.at += 1
                return True
        return False

    @property
    def _next(self) -> int:
        return self.source[self.at] if self.at < len(self.source) else -1

    @property
    def _expected(self) -> Replacement | None:
        return self.replacements.likely(self.source, self.at) if self.at < len(self.source) else None

    def _finish(self) -> bool:
        assert self._within is not None
        self._n_generated += 1
        if self._n_generated == len(self._within.new):
            self._within.n_right += 1
            self.go_to(self.at + len(self._within.old))
        return True

    def _declined(self) -> bool:
        """Abandon the current replacement as wrong. Return whether its tokens so far were the source's as well."""
        assert self._within is not None
        begun, n = self._within, self._n_generated
        begun.n_wrong += 1
        if begun.new[:n] != begun.old[:n]:
            return False
        self.go_to(self.at + n)
        return True

    def ahead(self, most: int) -> list[tuple[int, float]]:
        """Return up to `most` expected next tokens of the copy, each with its probability as far as replacements affect
        it.
        """
        at, source, found = self.at, self.source, list[tuple[int, float]]()
        if self._within is not None:
            found = [(token, 1.0) for token in self._within.new[self._n_generated :]]
            at += len(self._within.old)
        while at < len(source) and len(found) < most:
            if (replaced := self.replacements.likely(source, at)) is None:
                found.append((source[at], 1.0))
                at += 1
            else:
                found += zip(replaced.new, (replaced.chance, *[1.0] * len(replaced.new)), strict=False)
                at += len(replaced.old)
        return found[:most]
