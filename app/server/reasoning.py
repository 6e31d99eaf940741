"""Reasoning in a reply's chunks: its deltas, and how many tokens it took. Knows chunks; must not know an interface."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from app.reasoning import Delta, ReasoningParser
from runtime.engine import Chunk


class ReasoningReader:
    """Reads a reply chunk by chunk; `is_open`: the prompt has begun the reasoning already."""

    def __init__(self, is_open: bool) -> None:
        self._text, self._tokens = ReasoningParser(is_open), ReasoningParser(is_open)
        self._n = 0

    @property
    def n_tokens(self) -> int:
        """Reasoning tokens so far, the marks included; 0 when the reply began without reasoning."""
        return self._n if self._tokens.has_reasoning else 0

    def read(self, chunk: Chunk) -> Iterator[Delta]:
        """Deltas of reasoning and answer that became certain with the chunk.

        A chunk may hold the end of the reasoning among its tokens, so these are read one by one as well.
        """
        for piece in chunk.pieces[: len(chunk.tokens)]:
            if not self._tokens.is_answering:
                self._n += 1
                deque(self._tokens.feed(piece), maxlen=0)
        yield from self._text.feed(chunk.text)
        if chunk.finish_reason:
            yield from self._text.finish()
