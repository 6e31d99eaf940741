"""Trees of grammars in llama.cpp's notation. Knows no text."""

from __future__ import annotations

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
