"""Where JSON and other bracketed text ends, read piece by piece. Knows text alone."""

from __future__ import annotations

OPENING, CLOSING = "{[(", "}])"


class BracketScanner:
    """Follows a bracketed value; braces in strings do not count."""

    def __init__(self, quotes: str = '"') -> None:
        self._quotes, self._quote, self._depth, self._is_escaped = quotes, "", 0, False

    def end(self, text: str, start: int = 0) -> int | None:
        """Return where in `text`, of which everything before `start` was seen, the outermost bracket closes."""
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


def value_end(text: str) -> int | None:
    """Return where a value ends that a comma or a closing bracket follows, and whose texts are in either quotes."""
    quote, depth, i = "", 0, 0
    while i < len(text):
        character = text[i]
        if quote:
            i += character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING or character == ",":
            if not depth:
                return i
            depth -= character != ","
        i += 1
    return None
