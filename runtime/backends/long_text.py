"""Splits a long text where its parts have the same tokens as the whole.

The library first searches a text for special tokens, in a time quadratic in the number found: 20,000 messages took it
6 s. If the text is split before some of these tokens, the time is linear in its length. Knows the spelling of tokens;
knows no ids.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

BLOCK = 2**14  # minimum characters of a part


class Cutter:
    """Splits text before one of `marks`, the special tokens, unless it is in `eager` and absorbs the text before it."""

    def __init__(self, marks: Collection[str], eager: Collection[str] = ()) -> None:
        self._marks, self._eager = sorted(filter(None, marks), key=len, reverse=True), frozenset(eager)
        self._any = re.compile("|".join(map(re.escape, self._marks))) if self._marks else None

    def parts(self, text: str) -> Iterator[str]:
        """Yield the parts of the text in order."""
        start = 0
        while len(text) - start > BLOCK and (end := self._border(text, start + BLOCK)) is not None:
            yield text[start:end]
            start = end
        yield text[start:]

    def _border(self, text: str, start: int) -> int | None:
        """Return the first place from `start` on where the text may be split; None if there is none."""
        for found in self._any.finditer(text, start) if self._any else ():
            if found[0] not in self._eager and not self._is_inside(text, found.start()):
                return found.start()
        return None

    def _is_inside(self, text: str, place: int) -> bool:
        """Return whether a mark could span the place."""
        return any(text.find(mark, max(0, place - len(mark) + 1), place + len(mark) - 1) >= 0 for mark in self._marks)
