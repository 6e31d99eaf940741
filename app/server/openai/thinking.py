"""What a model thinks before it answers, told apart from the answer as it comes: <think> ... </think> at the start of a
reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator

from app.server.openai.calls import Delta, overlap
from runtime.engine import Chunk

BEGIN, END = "<think>", "</think>"


class Thinking:
    """Reads a reply piece by piece; `is_open`: the prompt has begun the thinking already."""

    def __init__(self, is_open: bool) -> None:
        self.has_thought, self.is_over = is_open, False
        self._held, self._is_inside = "", is_open
        self._is_after = False  # line breaks between thought and answer belong to neither

    def feed(self, text: str) -> Iterator[Delta]:
        """What became certain with `text`: {"reasoning_content": ...} or {"content": ...}."""
        text, self._held = self._held + text, ""
        if not self._is_inside and not self.is_over:
            if BEGIN.startswith(text.lstrip()):
                self._held = text
                return
            self._is_inside = self.has_thought = text.lstrip().startswith(BEGIN)
            self.is_over = not self._is_inside
            text = text.lstrip().removeprefix(BEGIN) if self._is_inside else text
        if self._is_inside:
            text = yield from self._think(text)
        text = text.lstrip("\n") if self._is_after else text
        if text:
            self._is_after = False
            yield {"content": text}

    def _think(self, text: str) -> Generator[Delta, None, str]:
        """The thought that is certain; returns the answer that follows it."""
        thought, ended, answer = text.partition(END)
        if not ended:
            at = len(text) - overlap(text, END)
            thought, self._held = text[:at], text[at:]
        if thought:
            yield {"reasoning_content": thought}
        self._is_inside, self.is_over, self._is_after = not ended, bool(ended), bool(ended)
        return answer

    def finish(self) -> Iterator[Delta]:
        """What was held back when the reply ended."""
        if self._held:
            yield {"reasoning_content" if self._is_inside else "content": self._held}
        self._held = ""


class Thoughts:
    """Reads a reply chunk by chunk: thought and answer, and how many tokens were thought, the marks included."""

    def __init__(self, is_open: bool) -> None:
        self._text, self._tokens = Thinking(is_open), Thinking(is_open)
        self._n = 0

    @property
    def n_tokens(self) -> int:
        """So far; 0 when the reply began without a thought."""
        return self._n if self._tokens.has_thought else 0

    def read(self, chunk: Chunk) -> Iterator[Delta]:
        """What became certain.

        A chunk may hold the end of the thought among its tokens, so these are read one by one as well.
        """
        for piece in chunk.pieces[: len(chunk.tokens)]:
            if not self._tokens.is_over:
                self._n += 1
                deque(self._tokens.feed(piece), maxlen=0)
        yield from self._text.feed(chunk.text)
        if chunk.finish_reason:
            yield from self._text.finish()


def opens(prompt: str) -> bool:
    """Does a rendered prompt end in the beginning of a thought?"""
    return prompt.rstrip().endswith(BEGIN)
