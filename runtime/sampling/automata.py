"""Automata of a grammar's lexemes, which tell where one would take what another one begins with.

They are Glushkov's (Russian Mathematical Surveys 16, 1961): a state is a place in the tree. Knows GBNF's trees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from runtime.sampling.gbnf_rules import (
    Alternatives,
    Characters,
    GbnfRules,
    Literal,
    Node,
    Ranges,
    Reference,
    Repeat,
    Series,
    Token,
    inner,
)

MAX_PLACES = 2000  # in one lexeme


@dataclass(frozen=True, slots=True)
class Places:
    """Where a tree may begin and end, as bits of its places; `is_empty`: whether it allows no text."""

    first: int = 0
    last: int = 0
    is_empty: bool = True

    def then(self, after: Places, follow: list[int]) -> Places:
        """Return both in sequence; adds to what may follow each place."""
        for i in bits(self.last):
            follow[i] |= after.first
        first = self.first | (after.first if self.is_empty else 0)
        last = after.last | (self.last if after.is_empty else 0)
        return Places(first, last, self.is_empty and after.is_empty)


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Iterator[int]) -> int:
    """Return the bits that are set in any of the masks."""
    found = 0
    for mask in masks:
        found |= mask
    return found


def combined(node: Node, parts: Sequence[Places], follow: list[int]) -> Places:
    """Return the places of a tree from those of its parts; adds to what may follow each place."""
    if isinstance(node, Alternatives):
        first, last = (union(getattr(part, end) for part in parts) for end in ("first", "last"))
        return Places(first, last, any(part.is_empty for part in parts))
    if isinstance(node, Repeat):
        (part,) = parts
        if node.most != 1:
            part.then(part, follow)
        return Places(part.first, part.last, part.is_empty or not node.least)
    found = Places()
    for part in parts:
        found = found.then(part, follow)
    return found


class Alphabet:
    """Code points in atoms, the pieces that no class of the grammar tells apart."""

    def __init__(self, rules: GbnfRules) -> None:
        ranges = {each for body in rules.bodies.values() for each in ranges_in(body)}
        cuts = {0} | {low for low, _ in ranges} | {high + 1 for _, high in ranges}
        self._atoms = {begin: i for i, begin in enumerate(sorted(cuts))}

    def mask(self, ranges: Ranges) -> int:
        """Return the atoms of these ranges, as bits."""
        atoms = ((self._atoms[low], self._atoms[high + 1]) for low, high in ranges if low <= high)
        return union((1 << end) - (1 << begin) for begin, end in atoms)


def ranges_in(node: Node) -> Iterator[tuple[int, int]]:
    """Yield the ranges of characters in a tree."""
    if isinstance(node, Characters):
        yield from node.ranges
    elif isinstance(node, Literal):
        yield from ((ord(character), ord(character)) for character in node.text)
    for part in inner(node):
        yield from ranges_in(part)


@dataclass(slots=True)
class Automaton:
    """What a lexeme takes: the atoms at each place, and the places that may follow it."""

    takes: list[int] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)
    ends: Places = field(default_factory=Places)

    def taken(self, places: int) -> int:
        """Return the atoms that these places take."""
        return union(self.takes[i] for i in bits(places))


class Lexer:
    """The automata of the lexemes of these rules; in them repetitions are without end."""

    def __init__(self, rules: GbnfRules) -> None:
        self._rules, self._alphabet = rules, Alphabet(rules)
        self._automaton, self._together = cache(self._made), cache(self._met)

    def is_large(self, node: Node) -> bool:
        """Whether a lexeme is too large to be looked into."""
        try:
            return not isinstance(node, Token) and not self._automaton(node)
        except OverflowError:
            return True

    def meet(self, one: Node, other: Node) -> bool:
        """Whether both may be the same text, or the same token."""
        if isinstance(one, Token) or isinstance(other, Token):
            return isinstance(one, Token) and isinstance(other, Token)
        last = self._automaton(other).ends.last
        return any(self._together(one, other)[i] & last for i in bits(self._automaton(one).ends.last))

    def begins(self, node: Node) -> int:
        """Return the atoms that a lexeme may begin with."""
        return 0 if isinstance(node, Token) else self._automaton(node).taken(self._automaton(node).ends.first)

    def swallows(self, longer: Node, shorter: Node, after: int) -> bool:
        """Whether a lexeme may go on with one of these atoms where the other one is whole."""
        if isinstance(longer, Token) or isinstance(shorter, Token):
            return False
        long, pairs = self._automaton(longer), self._together(shorter, longer)
        at = union(pairs[i] for i in bits(self._automaton(shorter).ends.last))
        return bool(long.taken(union(long.follow[j] for j in bits(at))) & after)

    def _made(self, node: Node) -> Automaton:
        """Return a lexeme's automaton. Raises OverflowError if it is large."""
        found = Automaton()
        found.ends = self._add(node, found)
        return found

    def _add(self, node: Node, to: Automaton) -> Places:
        if len(to.takes) > MAX_PLACES:
            raise OverflowError
        if isinstance(node, Literal):
            each: list[Node] = [Characters(((ord(one), ord(one)),)) for one in node.text]
            return self._add(Series(tuple(each)), to)
        if isinstance(node, Characters):
            to.takes.append(self._alphabet.mask(node.ranges))
            to.follow.append(0)
            place = 1 << (len(to.takes) - 1)
            return Places(place, place, is_empty=False)
        if isinstance(node, Reference):
            return self._add(self._rules.bodies[node.name], to)
        return combined(node, [self._add(part, to) for part in inner(node)], to.follow)

    def _met(self, one: Node, other: Node) -> dict[int, int]:
        """Return for places of one lexeme those of the other at which both may be after the same text."""
        a, b = self._automaton(one), self._automaton(other)
        found, seen, waiting = defaultdict[int, int](int), defaultdict[int, int](int), [(a.ends.first, b.ends.first)]
        while waiting:
            left, right = waiting.pop()
            for i in bits(left):
                new = right & ~seen[i]
                seen[i] |= new
                both = [j for j in bits(new) if a.takes[i] & b.takes[j]]
                found[i] |= union(1 << j for j in both)
                waiting += [(a.follow[i], b.follow[j]) for j in both]
        return found
