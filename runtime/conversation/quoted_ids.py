"""Encodes a rendered conversation as token ids: its template's marks as control tokens, its messages as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from runtime.conversation.marks import MarkNames
from runtime.conversation.quoting import Rendered

SPACE = " \t\n\v\f\r"  # the characters of C's isspace
BREAK = "\n"  # merges with no other character into one token when it follows a bracket or a bar


class NamedMark(Protocol):
    """A token that is matched in text by its name."""

    @property
    def token(self) -> int:
        """The token's id."""

    @property
    def text(self) -> str:
        """The token's name."""

    @property
    def strips_before(self) -> bool:
        """Whether the token absorbs the white space before it."""

    @property
    def strips_after(self) -> bool:
        """Whether the token absorbs the white space after it."""


class MarkedVocabulary(Protocol):
    """The part of a vocabulary that quoting needs."""

    @property
    def marks(self) -> Sequence[NamedMark]:
        """The tokens that are matched by their names."""

    @property
    def pieces(self) -> dict[int, bytes]:
        """The bytes of each token; b"" for a control token."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of a text."""


class QuotedEncoder:
    """Encodes conversations whose quoted names are among `names`."""

    def __init__(self, vocab: MarkedVocabulary, names: MarkNames) -> None:
        self._vocab, self._names = vocab, names
        named = [mark for mark in vocab.marks if mark.text in names.names]
        self._tokens = frozenset(mark.token for mark in named)
        self._stripping_before = tuple(mark.text for mark in named if mark.strips_before)
        self._stripping_after = tuple(mark.text for mark in named if mark.strips_after)

    def encode(self, rendered: Rendered) -> list[int]:
        """Return the ids; where no names are quoted, those of the text with its control tokens."""
        text, at, ids = rendered.text, 0, list[int]()
        for start, end in self._names.stretches(text, rendered.quoted) if rendered.quoted else ():
            ids += self._vocab.encode(text[at:start], special=True)
            ids += self._plain(self._stripped(text, start, end))
            at = end
        return ids + self._vocab.encode(text[at:], special=True)

    def _stripped(self, text: str, start: int, end: int) -> str:
        """Return a span of the text without the white space that adjacent marks absorb."""
        stretch = text[start:end]
        if text.endswith(self._stripping_after, 0, start):
            stretch = stretch.lstrip(SPACE)
        return stretch.rstrip(SPACE) if text.startswith(self._stripping_before, end) else stretch

    def _plain(self, stretch: str) -> list[int]:
        """Return the ids of a span without control tokens.

        A model's own tokens are matched in any text, so names are cut there.
        """
        ids = self._vocab.encode(stretch, special=False)
        if self._tokens.isdisjoint(ids):
            return ids
        cuts = [0, *(start + 1 for start, _ in self._names.spans(stretch)), len(stretch)]
        first, *more = (stretch[start:end] for start, end in pairwise(cuts))
        ids = self._vocab.encode(first, special=False)
        for part in more:
            ids += self._continuation(part)
        return ids

    def _continuation(self, text: str) -> list[int]:
        """Return the ids of text that follows other text, without the space that some vocabularies prepend."""
        ids = self._vocab.encode(text, special=False)
        if self._spells(ids, text):
            return ids
        broken = self._vocab.encode(BREAK + text, special=False)
        rests = (broken[n:] for n in range(1, min(4, len(broken))))
        return next((rest for rest in rests if self._spells(rest, text)), ids)

    def _spells(self, ids: Sequence[int], text: str) -> bool:
        return b"".join(self._vocab.pieces[token] for token in ids) == text.encode("utf8", "replace")
