"""Trees of grammars in llama.cpp's notation (GBNF), and their rules: which are regular, and how deeply they nest. Knows
no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LAST = 0x10FFFF  # code point
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of these ranges of code points."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, character by character."""

    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """A token, or with "!" any other: <name>, <[id]>."""

    source: str


@dataclass(frozen=True, slots=True)
class Reference:
    """What a rule allows."""

    name: str


@dataclass(frozen=True, slots=True)
class Series:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of several."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part, at least and at most this many times (None: without end)."""

    part: Node
    least: int
    most: int | None


Node = Characters | Literal | Token | Reference | Series | Alternatives | Repeat
ANY = Characters(((0, LAST),))


MAX_DEPTH = 1000  # rules and groups within each other; llguidance's recursion ends the process at some 2,000
MAX_REGULAR = 150  # the same where no rule refers to itself, which is read by recursion here


def inner(node: Node) -> tuple[Node, ...]:
    """Return the parts of a tree's root."""
    return node.parts if isinstance(node, Series | Alternatives) else (node.part,) if isinstance(node, Repeat) else ()


class GbnfRules:
    """The rules that `root` needs. Raises ValueError for one that is missing, and for rules that nest too deeply."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self.bodies: dict[str, Node] = {}  # each after those that it refers to, unless they refer to it
        self._regular: dict[str, int] = {}  # depth of rules without tokens that do not refer to themselves
        self._empty: set[str] = set()  # those of them that allow no text
        self._visit(rules)
        self.bodies = {name: self._grouped(body) for name, body in self.bodies.items()}

    def _visit(self, rules: Mapping[str, Node]) -> None:
        path, depth = dict[str, Iterator[str]](), 0

        def enter(name: str) -> None:
            nonlocal depth
            if name not in rules:
                raise ValueError(f"there is no rule '{name}'")
            path[name] = iter(dict.fromkeys(names_in(rules[name])))
            depth += height(rules[name])
            if depth > MAX_DEPTH:
                raise too_deep(MAX_DEPTH)

        enter("root")
        while path:
            name, names = next(reversed(path.items()))
            following = next((each for each in names if each not in self.bodies and each not in path), None)
            if following is not None:
                enter(following)
                continue
            del path[name]
            depth -= height(rules[name])
            self._close(name, rules[name])

    def _close(self, name: str, body: Node) -> None:
        """Add a rule whose references are added, or refer to it."""
        self.bodies[name] = body
        if self.is_regular(body):
            inside = max((self._regular[each] for each in names_in(body)), default=0)
            self._regular[name] = inside + height(body)
            if self._regular[name] > MAX_REGULAR:
                raise too_deep(MAX_REGULAR)
            if self.may_be_empty(body):
                self._empty.add(name)

    def _grouped(self, node: Node) -> Node:
        """Return a tree in which the regular options of a choice are one option."""
        if self.is_regular(node) or isinstance(node, Token | Reference):
            return node
        parts = tuple(map(self._grouped, inner(node)))
        if isinstance(node, Repeat):
            return Repeat(parts[0], node.least, node.most)
        if isinstance(node, Series):
            return Series(parts)
        regular, others = (tuple(part for part in parts if self.is_regular(part) == each) for each in (True, False))
        return Alternatives((Alternatives(regular), *others)) if len(regular) > 1 else Alternatives(parts)

    def is_regular(self, node: Node) -> bool:
        """Whether no token occurs in it, and no rule within itself."""
        if isinstance(node, Reference):
            return node.name in self._regular
        return not isinstance(node, Token) and all(map(self.is_regular, inner(node)))

    def may_be_empty(self, node: Node) -> bool:
        """Whether a regular part allows no text."""
        if isinstance(node, Reference):
            return node.name in self._empty
        if isinstance(node, Repeat) and not node.least:
            return True
        some = any if isinstance(node, Alternatives) else all
        parts = inner(node)
        is_text = isinstance(node, Series) or (isinstance(node, Literal) and not node.text)
        return some(map(self.may_be_empty, parts)) if parts else is_text


def too_deep(most: int) -> ValueError:
    """Return the error for rules that nest too deeply."""
    return ValueError(f"more than {most} of its rules and groups lie within each other")


def height(node: Node) -> int:
    """Return how deeply groups nest in a body, and 1 for the body itself."""
    return 1 + max(map(height, inner(node)), default=0)


def names_in(node: Node) -> Iterator[str]:
    """Yield the names of rules that a tree refers to."""
    if isinstance(node, Reference):
        yield node.name
    for part in inner(node):
        yield from names_in(part)
