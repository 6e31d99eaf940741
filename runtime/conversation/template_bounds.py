"""Bounds how much a chat template may create in one rendering, and measures the size of values in characters.

Knows Python's values; knows no messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from itertools import chain
from typing import Any, cast

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

ROOM = 2**30  # bytes that one rendering may create in total
CHARACTER = 4  # bytes per character, at most
THING = 24  # characters that one element of a list counts as, by its memory
BITS = 2**17  # bits of an integer, at most; Python prints no more than 14,300

TEXTS = str, bytes
VIEWS: tuple[type, ...] = type({}.keys()), type({}.values()), type({}.items())
SIZED: tuple[type, ...] = list, tuple, dict, set, frozenset, *VIEWS
CONTAINERS = *SIZED, Namespace


class TooMuchError(SecurityError):
    """A rendering creates more than it may."""


class Meter:
    """The bytes that one rendering has created so far. Raises TooMuchError where they exceed ROOM."""

    def __init__(self) -> None:
        self.used = 0

    def afford(self, length: int) -> None:
        """Raise TooMuchError if `length` more characters would not fit."""
        if self.used + CHARACTER * length > ROOM:
            raise TooMuchError("it creates too much text or too long a list")

    def spend(self, length: int) -> None:
        """Count `length` created characters."""
        self.afford(length)
        self.used += CHARACTER * length

    def spend_text(self, text: str) -> str:
        """Count a created text by its memory, mostly one byte per character, and return it."""
        self.used += text.__sizeof__()
        self.afford(0)
        return text


def size(value: object) -> int:
    """Return the size of a value in characters, without its elements."""
    if isinstance(value, TEXTS):
        return len(value)
    if isinstance(value, int):
        return 8 + value.bit_length() // 3
    return THING * (1 + len(cast("Sized", value))) if isinstance(value, SIZED) else THING


def weight(value: object, known: dict[int, int] | None = None) -> int:
    """Return the size in characters of a value with all its elements, each counted as often as it is printed."""
    if not isinstance(value, CONTAINERS):
        return size(value)
    known = {} if known is None else known
    if (key := id(value)) not in known:
        known[key] = THING  # Python prints no more than this for a list inside itself
        known[key] = THING + sum(THING + weight(part, known) for part in parts(value))
    return known[key]


def parts(value: Any) -> Iterable[object]:
    """Return the elements of a container, and the keys too of a dict."""
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    return chain(value, value.values()) if isinstance(value, dict) else value


def depth(value: object) -> int:
    """Return the nesting depth of containers. Raises RecursionError where it has no end."""
    if not isinstance(value, list | tuple | dict):
        return 0
    return 1 + max(map(depth, {id(part): part for part in parts(value)}.values()), default=0)


def checked_number(bits: float) -> None:
    """Raise TooMuchError for an integer that is too long."""
    if bits > BITS:
        raise TooMuchError("it creates too large a number")
