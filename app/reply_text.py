"""The text of a reply: its reasoning, <think> ... </think>, and its answer; its pieces by source, the target model or
the drafter of an accepted draft token; and which of its tokens have been shown.

Knows text, its stored form, and chunks; must not know a protocol or widgets.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from runtime.engine import Chunk, Engine, TokenLogprobs
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


@dataclass(frozen=True, slots=True)
class Piece:
    """Text with the name of its drafter, or "" for the target model's own tokens."""

    text: str
    drafter: str = ""


def pieces_of(text: str, facts: Mapping[str, Any]) -> list[Piece]:
    """Return the text of a stored reply, split where the drafter changes."""
    found, begin = list[Piece](), 0
    for length, drafter in facts.get("marks", []):
        found.append(Piece(text[begin : begin + length], drafter))
        begin += length
    return [*found, Piece(text[begin:])] if begin < len(text) else found


def marks_of(pieces: Sequence[Piece]) -> list[tuple[int, str]]:
    """Return (characters, drafter) for each run of text with the same drafter, to store with the message."""
    runs = groupby(pieces, lambda piece: piece.drafter)
    return [(sum(len(piece.text) for piece in run), drafter) for drafter, run in runs]


def text_of(pieces: Sequence[Piece]) -> str:
    """Return the whole text."""
    return "".join(piece.text for piece in pieces)


class ShownToken(NamedTuple):
    """A token with its log probabilities, and the number of characters of the reply before it."""

    offset: int
    entry: TokenLogprobs


class ShownTokens:
    """Reads the chunks of one reply whose log probabilities were requested."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._decoder = engine, getincrementaldecoder("utf8")("replace")
        self._n_shown = self._n_seen = 0  # characters of the text, and of the tokens
        self._waiting: deque[tuple[ShownToken, bool]] = deque()  # with whether they are text

    def read(self, chunk: Chunk) -> list[ShownToken]:
        """Return the tokens that are shown with this chunk. A token may end within a character."""
        self._n_shown += len(chunk.text)
        for entry in chunk.logprobs:
            data = b"" if self._engine.is_end(entry.token) else self._engine.token_bytes(entry.token)
            self._waiting.append((ShownToken(self._n_seen, entry), bool(data)))
            self._n_seen += len(self._decoder.decode(data))
        found: list[ShownToken] = []
        while self._waiting and (self._is_shown(*self._waiting[0]) or self._is_rest(chunk)):
            found.append(self._waiting.popleft()[0])
        return found

    def _is_shown(self, token: ShownToken, is_text: bool) -> bool:
        """Whether a token begins within the text so far. One without text may also stand at its end."""
        return token.offset < self._n_shown + (not is_text)

    def _is_rest(self, chunk: Chunk) -> bool:
        """Whether all tokens left are shown: another server's reply has ended, whose text may be shorter than they."""
        return bool(self._engine.facts.upstream and chunk.finish_reason and not chunk.stop)
