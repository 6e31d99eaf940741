"""Splits a reply's chunks into reasoning and answer, and counts the reasoning tokens. Knows chunks; must not know an
interface.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from app.reasoning import Delta, ReasoningParser
from runtime.engine import Chunk


class ReasoningReader:
    """Reads a reply chunk by chunk. `is_open`: the prompt has already opened the reasoning."""

    def __init__(self, is_open: bool) -> None:
        self._text, self._tokens = ReasoningParser(is_open), ReasoningParser(is_open)
        self._n = 0

    @property
    def n_tokens(self) -> int:
        """The number of reasoning tokens so far, with the markers. 0 if the reply began without reasoning."""
        return self._n if self._tokens.has_reasoning else 0

    def read(self, chunk: Chunk) -> Iterator[Delta]:
        """Yield the deltas of reasoning and answer that are certain after this chunk.

        The reasoning may end within a chunk, so its tokens are also read one by one.
        """
        for piece in chunk.pieces[: len(chunk.tokens)]:
            if not self._tokens.is_answering:
                self._n += 1
                deque(self._tokens.feed(piece), maxlen=0)
        yield from self._text.feed(chunk.text)
        if chunk.finish_reason:
            yield from self._text.finish()
