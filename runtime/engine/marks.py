"""Names of tokens that control how a prompt is read, where they are text that somebody wrote.

Knows names and text; knows no ids and no template.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

Span = tuple[int, int]  # from the first character to after the last one
BARS = "|｜"  # the vertical bars of names such as <|end|>, ASCII and full width


class MarkNames:
    """A set of names, and where they are in a text."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name for name in names if len(name) > 1)
        self._names = pattern_of(self.names)
        self._parts = pattern_of(self.names | {inner for name in self.names if (inner := inside(name))})

    def occur_in(self, text: str) -> bool:
        """Is there a name in the text, or one that a template would complete?"""
        return bool(self._parts and self._parts.search(text))

    def guarded(self, text: str, guard: str, kept: Collection[str] = ()) -> str:
        """The text with a guard after the first character of every name but the `kept` ones."""
        if self._parts is None:
            return text
        return self._parts.sub(lambda found: found[0] if whole(found) in kept else found[0] + guard, text)

    def spans(self, text: str) -> Iterator[Span]:
        """Where the names are, the longest at each place; one may overlap the next."""
        for found in self._names.finditer(text) if self._names else ():
            yield found.start(), found.start() + len(whole(found))

    def stretches(self, text: str, quoted: Sequence[Span]) -> Iterator[Span]:
        """The parts of a text that hold names in `quoted` places, each as far as the marks around it."""
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


def pattern_of(names: Collection[str]) -> re.Pattern[str] | None:
    """Finds the first character of a name, looking ahead to the rest of the longest.

    Alternatives that differ in their first character let the search skip text at the speed of a scan.
    """
    rests: dict[str, list[str]] = {}
    for name in sorted(names, key=len, reverse=True):
        rests.setdefault(name[0], []).append(re.escape(name[1:]))
    found = [f"{re.escape(first)}(?=({'|'.join(of_first)}))" for first, of_first in rests.items()]
    return re.compile("|".join(found)) if found else None


def whole(found: re.Match[str]) -> str:
    """The name whose first character was found."""
    return found[0] + found[found.lastindex or 0]


def inside(name: str) -> str:
    """What a template that writes `<{{ key }}>` would complete to the name; "" where that is an ordinary word."""
    inner = name[1:-1]
    return inner if len(inner) > 1 and (inner[0] in BARS or inner[-1] in BARS) else ""
