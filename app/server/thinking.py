"""What a model thinks before it answers, told apart from the answer as it comes: <think> ... </think> at the start of a reply. Knows no tokens."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from app.server.calls import Delta, overlap

BEGIN, END = "<think>", "</think>"


class Thinking:
    """Reads a reply piece by piece; `is_open`: the prompt has begun the thinking already."""

    def __init__(self, is_open: bool) -> None:
        self._held, self._is_inside, self._is_over = "", is_open, False
        self._is_after = False  # line breaks between thought and answer belong to neither

    def feed(self, text: str) -> Iterator[Delta]:
        """What became certain with `text`: {"reasoning_content": ...} or {"content": ...}."""
        text, self._held = self._held + text, ""
        if not self._is_inside and not self._is_over:
            if BEGIN.startswith(text.lstrip()):
                self._held = text
                return
            self._is_inside = text.lstrip().startswith(BEGIN)
            self._is_over = not self._is_inside
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
        self._is_inside, self._is_over, self._is_after = not ended, bool(ended), bool(ended)
        return answer

    def finish(self) -> Iterator[Delta]:
        """What was held back when the reply ended."""
        if self._held:
            yield {"reasoning_content" if self._is_inside else "content": self._held}
        self._held = ""


def opens(prompt: str) -> bool:
    """Does a rendered prompt end in the beginning of a thought?"""
    return prompt.rstrip().endswith(BEGIN)
