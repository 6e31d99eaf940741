"""From the bytes of tokens to text that can be shown: whole UTF-8 characters, nothing that may still become a stop
string.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

FENCE = "```"


class TextStream:
    """Takes bytes piece by piece and gives out text as soon as it is certain.

    `stop` is the stop string once one has appeared, `is_code` is between a Markdown fence and the next.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = [stop for stop in stops if stop]
        self._decoder = codecs.getincrementaldecoder("utf8")("replace")
        self._held, self._fence, self.stop = "", "", ""
        self.is_code = False

    @property
    def stopped(self) -> bool:
        """Has a stop string appeared?"""
        return bool(self.stop)

    def feed(self, piece: bytes) -> str:
        """The text that became certain with these bytes; the stop string and what follows it never come."""
        text = self._release(self._decoder.decode(piece), final=False)
        *fences, self._fence = (self._fence + text).split(FENCE)
        self.is_code ^= len(fences) % 2 == 1
        self._fence = self._fence[1 - len(FENCE) :]
        return text

    def finish(self) -> str:
        """What was still held back, at the end of the reply."""
        return self._release(self._decoder.decode(b"", True), final=True)

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
    """The length of the longest end of `text` that begins `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
