"""What a reply has instead of its source's tokens, and where in the source it is: what was replaced in one place is
expected in the next, as a name that is changed throughout a file. Knows token ids; knows no text.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

CONFIRMED = 2  # tokens in step after a difference, after which it is taken for a replacement
BEFORE = 2  # tokens before what is replaced, after which it is a replacement of its own, as all that is put in
LIKELY = 0.6  # chance of a replacement from which it is drafted
MOST = 8  # replacements that begin with the same token


@dataclass(slots=True)
class Replacement:
    """Tokens of the source, what the reply had instead, and how often it had that where the source had these tokens."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    n_right: int = 1
    n_wrong: int = 0

    @property
    def chance(self) -> float:
        """Chance that it holds in the next place."""
        return (self.n_right + 1) / (self.n_right + self.n_wrong + 2)


class Replacements:
    """What was replaced so far."""

    def __init__(self) -> None:
        self._by_first: dict[int, list[Replacement]] = {}  # by the first token that is replaced, the longest first

    def learn(self, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Add a replacement, of one token or more; one of the same tokens by others was wrong."""
        if not old or old == new:
            return
        known = self._by_first.setdefault(old[0], [])
        before = next((each for each in known if each.old == old), None)
        if before is None:
            if len(known) == MOST:
                known.remove(min(known, key=lambda each: each.chance))
            known.append(Replacement(old, new))
            known.sort(key=lambda each: -len(each.old))
        elif before.new == new:
            before.n_right += 1
        else:
            before.new, before.n_right, before.n_wrong = new, 1, before.n_wrong + 1

    def at(self, source: array[int], place: int) -> Iterator[Replacement]:
        """Yield those whose tokens the source has at a place, the longest first."""
        for each in self._by_first.get(source[place], ()) if place < len(source) else ():
            if tuple(source[place : place + len(each.old)]) == each.old:
                yield each

    def likely(self, source: array[int], place: int) -> Replacement | None:
        """Return the one that is expected at a place, which is not the source's end."""
        if source[place] not in self._by_first:
            return None
        return next((each for each in self.at(source, place) if each.chance >= LIKELY), None)


class SourcePlace:
    """Where a copy is in its source, perhaps within a replacement."""

    def __init__(self, source: array[int], replacements: Replacements) -> None:
        self.source, self.replacements = source, replacements
        self.at = 0  # in the source
        self._within: Replacement | None = None  # what began at `at`, of which the reply has the first tokens
        self._n_said = 0  # of them

    def go_to(self, at: int) -> None:
        """Go to a place in the source."""
        self.at, self._within, self._n_said = at, None, 0

    def take(self, token: int) -> bool:
        """Go on by a token of the reply. Returns whether the copy may have it there."""
        if self._within is not None:
            if self._within.new[self._n_said] == token:
                return self._said()
            if not self._declined():
                return False
        for each in self.replacements.at(self.source, self.at):
            if each.new and each.new[0] == token and (each.chance >= LIKELY or self._next != token):
                self._within = each
                return self._said()
        if self._next == token:
            if expected := self._expected:
                expected.n_wrong += 1
            self.at += 1
            return True
        while (expected := self._expected) and not expected.new:  # it is left out
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

    def _said(self) -> bool:
        assert self._within is not None
        self._n_said += 1
        if self._n_said == len(self._within.new):
            self._within.n_right += 1
            self.go_to(self.at + len(self._within.old))
        return True

    def _declined(self) -> bool:
        """The replacement does not hold here. Returns whether its first tokens were the source's as well."""
        assert self._within is not None
        begun, n = self._within, self._n_said
        begun.n_wrong += 1
        if begun.new[:n] != begun.old[:n]:
            return False
        self.go_to(self.at + n)
        return True

    def ahead(self, most: int) -> list[tuple[int, float]]:
        """Return up to `most` tokens that the copy is expected to have next, and the chance of each as far as
        replacements go.
        """
        at, source, found = self.at, self.source, list[tuple[int, float]]()
        if self._within is not None:
            found = [(token, 1.0) for token in self._within.new[self._n_said :]]
            at += len(self._within.old)
        while at < len(source) and len(found) < most:
            if (replaced := self.replacements.likely(source, at)) is None:
                found.append((source[at], 1.0))
                at += 1
            else:
                found += zip(replaced.new, (replaced.chance, *[1.0] * len(replaced.new)), strict=False)
                at += len(replaced.old)
        return found[:most]
