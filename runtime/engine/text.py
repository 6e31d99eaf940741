"""Converts the bytes of tokens to text that can be shown: whole UTF-8 characters, without a possible beginning of a
stop string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

FENCE = "```"


class TextStream:
    """Converts bytes piece by piece and returns text as soon as it is certain.

    `stop` is the stop string once one has appeared. `is_code` is true between a Markdown fence and the next. From the
    second line on, each line must begin with `n_indent` spaces or tabs; `is_outdented` is set at one that does not.
    """

    def __init__(self, stops: Sequence[str] = (), n_indent: int = 0) -> None:
        self._stops, self._n_indent = [stop for stop in stops if stop], n_indent
        self._indent: int | None = None  # indentation of a line without other characters so far
        self.is_outdented = False
        self._decoder = codecs.getincrementaldecoder("utf8")("replace")
        self._held, self._fence, self.stop = "", "", ""
        self.is_code = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string or an insufficiently indented line has appeared."""
        return bool(self.stop) or self.is_outdented

    def feed(self, piece: bytes) -> str:
        """Return the text that became certain with these bytes; never the stop string or text after it."""
        text = self._indented(self._release(self._decoder.decode(piece), final=False))
        *fences, self._fence = (self._fence + text).split(FENCE)
        self.is_code ^= len(fences) % 2 == 1
        self._fence = self._fence[1 - len(FENCE) :]
        return text

    def finish(self) -> str:
        """Return the remaining text at the end of the reply."""
        return self._indented(self._release(self._decoder.decode(b"", True), final=True))

    def _indented(self, text: str) -> str:
        """Return the text up to the first insufficiently indented line, including that line's indentation."""
        for at, character in enumerate(text if self._n_indent else ""):
            if self._indent is not None and character in " \t":
                self._indent += 1
                continue
            if self._indent is not None and self._indent < self._n_indent:
                self.is_outdented = True
                return text[:at]
            self._indent = 0 if character == "\n" else None
        return text

    def _release(self, new: str, *, final: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        at, self.stop = min(((i, stop) for stop in self._stops if (i := text.find(stop)) >= 0), default=(-1, ""))
        if self.stop:
            self._held = ""
            return text[:at]
        cut = len(text) if final else len(text) - max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[cut:]
        return text[:cut]


def overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
