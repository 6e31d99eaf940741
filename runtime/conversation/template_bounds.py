"""How much a chat template may make in one rendering, and how much room a value takes, all counted in characters.
Knows Python's values; knows no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import chain
from typing import Any, cast

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

ROOM = 2**30  # bytes that all that is made in one rendering may have
CHARACTER = 4  # bytes, at most
THING = 24  # characters that take the memory of one thing in a list
BITS = 2**17  # of a whole number; Python writes no more than 14,300

TEXTS = str, bytes
VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items())
SIZED: tuple[type, ...] = list, tuple, dict, set, frozenset, *VIEWS
CONTAINERS = *SIZED, Namespace


class TooMuchError(SecurityError):
    """A rendering makes more than it may."""


class Meter:
    """What one rendering has made so far, in bytes. Raises TooMuchError where that becomes too much."""

    def __init__(self) -> None:
        self.used = 0

    def afford(self, length: int) -> None:
        """Refuses what would not fit; `length` in characters."""
        if self.used + CHARACTER * length > ROOM:
            raise TooMuchError("it makes too much text or too long a list")

    def spend(self, length: int) -> None:
        """Counts what is made now, in characters."""
        self.afford(length)
        self.used += CHARACTER * length

    def spend_text(self, text: str) -> str:
        """Counts a text that was made by what it takes, which is mostly one byte a character; returns it."""
        self.used += text.__sizeof__()
        self.afford(0)
        return text


def size(value: object) -> int:
    """Return the characters that a value takes by itself, without what is in it."""
    if isinstance(value, TEXTS):
        return len(value)
    if isinstance(value, int):
        return 8 + value.bit_length() // 3
    return THING * (1 + len(cast("Sized", value))) if isinstance(value, SIZED) else THING


def weight(value: object, known: dict[int, int] | None = None) -> int:
    """Return the characters of a value with all that is in it, each as often as writing it would write it."""
    if not isinstance(value, CONTAINERS):
        return size(value)
    known = {} if known is None else known
    if (key := id(value)) not in known:
        known[key] = THING  # of a list that contains itself Python writes no more
        known[key] = THING + sum(THING + weight(part, known) for part in parts(value))
    return known[key]


def parts(value: Any) -> Iterable[object]:
    """Return what is in a container."""
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    return chain(value, value.values()) if isinstance(value, dict) else value


def depth(value: object) -> int:
    """Return how deep containers are nested. Raises RecursionError where they have no end."""
    if not isinstance(value, list | tuple | dict):
        return 0
    return 1 + max(map(depth, {id(part): part for part in parts(value)}.values()), default=0)


def checked_number(bits: float) -> None:
    """Raises TooMuchError for a whole number that is too long."""
    if bits > BITS:
        raise TooMuchError("it makes too great a number")
