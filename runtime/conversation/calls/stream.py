"""The parts of a reply, and what parsers of a reply that comes in pieces have in common. Knows no form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Literal, NamedTuple, TypeVar

PartKind = Literal["content", "thought", "call", "arguments"]


class ReplyPart(NamedTuple):
    """A part of a reply: of its text or its reasoning, the name of a function whose call begins, or a part of the
    arguments of the last call, as JSON.
    """

    kind: PartKind
    text: str


T = TypeVar("T")
Reading = Generator[None, None, T]  # reads text to a result of this type; pauses where more text is needed


class StreamParser(ABC):
    """Parses a reply that comes in pieces: holds the text that has not been read, and the parts that are certain."""

    def __init__(self, held: str = "") -> None:
        self.held, self.has_ended = held, False
        self._parts, self._reading = list[ReplyPart](), self._read()

    @abstractmethod
    def _read(self) -> Reading[None]:
        """Read the reply, without an end."""

    @abstractmethod
    def _read_end(self, is_cut: bool) -> None:
        """Read what is still held at the end of the reply. If it was cut, a possible start of a mark is dropped."""

    def feed(self, text: str) -> list[ReplyPart]:
        """Return the parts that are certain after this text."""
        self.held += text
        next(self._reading)
        parts, self._parts = self._parts, []
        return parts

    def finish(self, is_cut: bool) -> list[ReplyPart]:
        """Return the parts that are certain at the end of the reply."""
        self.has_ended = True
        parts = self.feed("")
        self._read_end(is_cut)
        return parts + self._parts

    def add(self, kind: PartKind, text: str) -> None:
        """Add a part that is certain."""
        self._parts.append(ReplyPart(kind, text))

    def add_arguments(self, json: str) -> None:
        """Add JSON to the arguments of the last call."""
        if self._parts and self._parts[-1].kind == "arguments":
            json = self._parts.pop().text + json
        if json:
            self.add("arguments", json)

    def take(self, n: int, mark: str = "") -> str:
        """Read `n` characters and the mark after them, and return the characters."""
        text, self.held = self.held[:n], self.held[n + len(mark) :]
        return text

    def take_until(self, mark: str, lead: str = "") -> tuple[str, bool]:
        """Read the text before a mark, and the mark, or before what may become one. Whitespace may lead to the mark.
        Return the text, and whether the mark was there.
        """
        at = self.held.find(mark)
        if at >= 0:
            return self.take(at, mark).removesuffix(lead), True
        n = before_overlap(self.held, mark)
        return self.take(min(n, before_overlap(self.held, lead + mark)) if lead else n), False


def before_overlap(text: str, mark: str) -> int:
    """Return the length of the text before a possible beginning of a mark at its end."""
    at = max(0, len(text) - len(mark) + 1)
    while (at := text.find(mark[:1], at)) >= 0:
        if mark.startswith(text[at:]):
            return at
        at += 1
    return len(text)
