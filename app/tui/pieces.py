"""The text of a reply by who wrote it: the target itself, or a drafter whose guess was accepted.

Knows text and how it is kept with a message; knows no widgets and no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.chats.store import StoredMessage
from app.terminal import inert

SEPARATORS = str.maketrans("\u2028\u2029", "\n\n")  # Markdown knows one line separator


@dataclass(frozen=True, slots=True)
class Piece:
    """Text, and the drafter that guessed it; "" where the target wrote it itself."""

    text: str
    drafter: str = ""


def pieces_of(message: StoredMessage) -> list[Piece]:
    """The text of a kept reply, cut where another drafter's begins."""
    return list(_cut(message.content, message.facts.get("marks", [])))


def _cut(text: str, marks: Sequence[tuple[int, str]]) -> Iterator[Piece]:
    begin = 0
    for length, drafter in marks:
        yield Piece(text[begin : begin + length], drafter)
        begin += length
    if begin < len(text):
        yield Piece(text[begin:])


def marks_of(pieces: Sequence[Piece]) -> list[tuple[int, str]]:
    """How many characters in a row are whose, to be kept with the message."""
    runs = groupby(pieces, lambda piece: piece.drafter)
    return [(sum(len(piece.text) for piece in run), drafter) for drafter, run in runs]


def text_of(pieces: Sequence[Piece]) -> str:
    """The whole text."""
    return "".join(piece.text for piece in pieces)


def clean(text: str) -> str:
    """Text that can command nothing and whose lines everyone counts alike."""
    return inert(text.translate(SEPARATORS))
