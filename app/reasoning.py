"""Separates the reasoning at the start of a reply, <think> ... </think>, from the answer, whole or piece by piece.

Knows text; must not know a protocol, tokens or widgets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from runtime.engine.text import overlap

BEGIN, END = "<think>", "</think>"
Delta = dict[str, str]


class ReasoningParser:
    """Splits a streamed reply. `is_open`: the prompt has already opened the reasoning."""

    def __init__(self, is_open: bool = False) -> None:
        self.has_reasoning = is_open
        self.is_answering = False  # no more reasoning is possible
        self._is_inside = is_open
        self._held = ""  # may be the beginning of a marker
        self._skips_breaks = False  # line breaks between reasoning and answer belong to neither

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the deltas that are certain after `text`: {"reasoning_content": ...} or {"content": ...}."""
        text, self._held = self._held + text, ""
        if not self._is_inside and not self.is_answering:
            if BEGIN.startswith(text.lstrip()):
                self._held = text
                return
            self._is_inside = self.has_reasoning = text.lstrip().startswith(BEGIN)
            self.is_answering = not self._is_inside
            text = text.lstrip().removeprefix(BEGIN) if self._is_inside else text
        if self._is_inside:
            text = yield from self._reason(text)
        text = text.lstrip("\n") if self._skips_breaks else text
        if text:
            self._skips_breaks = False
            yield {"content": text}

    def _reason(self, text: str) -> Generator[Delta, None, str]:
        """Yield the reasoning that is certain, and return the answer after it."""
        reasoning, ended, answer = text.partition(END)
        if not ended:
            at = len(text) - overlap(text, END)
            reasoning, self._held = text[:at], text[at:]
        if reasoning:
            yield {"reasoning_content": reasoning}
        self._is_inside, self.is_answering, self._skips_breaks = not ended, bool(ended), bool(ended)
        return answer

    def finish(self) -> Iterator[Delta]:
        """Yield the text that was held back when the reply ended."""
        if self._held:
            yield {"reasoning_content" if self._is_inside else "content": self._held}
        self._held = ""


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning and the answer of a reply, which may be incomplete. Reasoning without an end leaves no
    answer.
    """
    parser = ReasoningParser()
    deltas = [*parser.feed(text), *parser.finish()]
    reasoning, answer = ("".join(delta.get(key, "") for delta in deltas) for key in ("reasoning_content", "content"))
    return reasoning.strip(), answer


def opens_reasoning(prompt: str) -> bool:
    """Return whether a rendered prompt ends with the marker that opens the reasoning."""
    return prompt.rstrip().endswith(BEGIN)
