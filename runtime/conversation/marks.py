"""Finds the names of control tokens in text that a user or a model wrote.

Knows names and text; knows no ids and no template.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

Span = tuple[int, int]  # the first character and the one after the last
BARS = "|｜"  # the vertical bars of names such as <|end|>, ASCII and full width


class Finder:
    """Finds names, possibly many thousands, by their first two characters and their lengths."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._lengths = frozenset(names), dict[str, list[int]]()
        for first, length in sorted({(name[:2], len(name)) for name in names}, reverse=True):
            self._lengths.setdefault(first, []).append(length)
        firsts = "".join(map(re.escape, sorted({name[0] for name in names})))
        self._firsts = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of the names, the longest at each position; a span may overlap the next."""
        for found in self._firsts.finditer(text):
            start = found.start()
            for length in self._lengths.get(text[start : start + 2], ()):
                if (name := text[start : start + length]) in self._names:
                    yield start, start + len(name)
                    break


class MarkNames:
    """A set of names that can be found in a text."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name for name in names if len(name) > 1)
        self._whole = Finder(self.names)
        self._parts = Finder(self.names | {inner for name in self.names if (inner := inside(name))})

    def occur_in(self, text: str) -> bool:
        """Whether the text holds a name, or the inside of one that a template would complete."""
        return any(True for _ in self._parts.spans(text))

    def guarded(self, text: str, guard: str, kept: Collection[str] = ()) -> str:
        """Return the text with a guard after the first character of every name except the `kept` ones."""
        cuts = [start + 1 for start, end in self._parts.spans(text) if text[start:end] not in kept]
        return guard.join(text[start:end] for start, end in pairwise([0, *cuts, len(text)]))

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of the names, the longest at each position; a span may overlap the next."""
        return self._whole.spans(text)

    def stretches(self, text: str, quoted: Sequence[Span]) -> Iterator[Span]:
        """Yield the spans of a text that hold names in `quoted` places, each extended to the names around it."""
        left, reach, rest = 0, -1, deque(quoted)
        for start, end in self.spans(text):
            while rest and rest[0][1] <= start:
                rest.popleft()
            if rest and rest[0][0] < end:
                reach = end
            elif start >= reach:
                if reach > left:
                    yield left, start
                left = max(left, end)
        if reach > left:
            yield left, len(text)


def inside(name: str) -> str:
    """Return the part that a template with `<{{ key }}>` completes to the name, or "" if it is an ordinary word."""
    inner = name[1:-1]
    return inner if len(inner) > 1 and (inner[0] in BARS or inner[-1] in BARS) else ""
