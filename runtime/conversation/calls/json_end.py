"""Finds where JSON and other bracketed text ends in a stream. Knows text alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runtime.conversation.calls.form import GEMMA_QUOTE

QUOTED = {'"': re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL), "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL)}
OPENING, CLOSING = "{[(", "}])"


class BracketScanner:
    """Tracks a bracketed value; brackets in strings do not count."""

    def __init__(self, quotes: str = '"') -> None:
        self._quotes, self._quote, self._depth, self._is_escaped = quotes, "", 0, False

    def end(self, text: str, start: int = 0) -> int | None:
        """Return the position in `text` after the outermost closing bracket; text before `start` was read already."""
        for i in range(start, len(text)):
            if self._closes(text[i]):
                return i + 1
        return None

    def _closes(self, character: str) -> bool:
        if self._quote:
            ends = character == self._quote and not self._is_escaped
            self._is_escaped = character == "\\" and not self._is_escaped
            self._quote = "" if ends else self._quote
        elif character in self._quotes:
            self._quote = character
        elif character in OPENING:
            self._depth += 1
        elif character in CLOSING:
            self._depth -= 1
            return self._depth == 0
        return False


class ValueScanner:
    """Finds the end of a value in growing text: before a mark, or without one before a comma or a closing bracket.

    What stands between quotation marks ends nothing.
    """

    def __init__(self, quotes: Sequence[str], mark: str = "") -> None:
        self._quotes, self._mark = quotes, mark
        self._quote, self._depth, self._at = "", 0, 0

    def end(self, text: str) -> int | None:
        """Return the position where the value ends, reading only the text added since the last call."""
        while self._at < len(text):
            if self._quote:
                if not self._skip_quoted(text):
                    return None
                continue
            found = next((each for each in (self._mark, *self._quotes) if begins(text, self._at, each)), "")
            if found and not text.startswith(found, self._at):
                return None  # more text is needed to know
            if found in self._quotes:
                self._quote, self._at = found, self._at + len(found)
            elif found or (not self._mark and self._ends(text[self._at])):
                return self._at
            else:
                self._at += 1
        return None

    def _skip_quoted(self, text: str) -> bool:
        """Move past the quoted text; return False if its end has not arrived."""
        if self._quote == GEMMA_QUOTE:
            end = text.find(GEMMA_QUOTE, self._at)
        else:
            end = QUOTED[self._quote].match(text, self._at).end()  # type: ignore[union-attr]  # matches anything
        has_ended = end >= 0 and text.startswith(self._quote, end)
        if has_ended:
            self._at, self._quote = end + len(self._quote), ""
        else:
            self._at = end if end >= 0 else max(self._at, len(text) - len(GEMMA_QUOTE) + 1)
        return has_ended

    def _ends(self, character: str) -> bool:
        if not self._depth and (character in CLOSING or character == ","):
            return True
        self._depth += (character in OPENING) - (character in CLOSING)
        return False


def begins(text: str, at: int, mark: str) -> bool:
    """Whether a mark, or what may become one at the text's end, begins at a position."""
    return bool(mark) and mark.startswith(text[at : at + len(mark)])
