"""The text of a reply by its source: the target model, or the drafter of an accepted draft token.

Knows text and its stored form; knows no widgets and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.chats.store import StoredMessage
from app.terminal import inert

SEPARATORS = str.maketrans("\u2028\u2029", "\n\n")  # Markdown has only one line separator


@dataclass(frozen=True, slots=True)
class Piece:
    """Text with the name of its drafter, or "" for the target model's own tokens."""

    text: str
    drafter: str = ""


def pieces_of(message: StoredMessage) -> list[Piece]:
    """Return the text of a stored reply, split where the drafter changes."""
    return list(_cut(message.content, message.facts.get("marks", [])))


def _cut(text: str, marks: Sequence[tuple[int, str]]) -> Iterator[Piece]:
    begin = 0
    for length, drafter in marks:
        yield Piece(text[begin : begin + length], drafter)
        begin += length
    if begin < len(text):
        yield Piece(text[begin:])


def marks_of(pieces: Sequence[Piece]) -> list[tuple[int, str]]:
    """Return (characters, drafter) for each run of text with the same drafter, to store with the message."""
    runs = groupby(pieces, lambda piece: piece.drafter)
    return [(sum(len(piece.text) for piece in run), drafter) for drafter, run in runs]


def text_of(pieces: Sequence[Piece]) -> str:
    """Return the whole text."""
    return "".join(piece.text for piece in pieces)


def clean(text: str) -> str:
    """Return the text with control characters made visible and a single kind of line separator."""
    return inert(text.translate(SEPARATORS))
