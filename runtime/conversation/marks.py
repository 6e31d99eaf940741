"""Finds the names of control tokens in text that a user or a model wrote, and encodes a rendered conversation as token
ids: its template's marks as control tokens, its messages as text.

Knows names, text and a vocabulary; knows no template.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing the vocabulary loads the model library, which not every caller needs
    from runtime.backends.vocab import Vocab
    from runtime.conversation.quoting import Rendered

Span = tuple[int, int]  # the first character and the one after the last
SPACE = " \t\n\v\f\r"  # the characters of C's isspace
BREAK = "\n"  # merges with no other character into one token when it follows a bracket or a bar
BARS = "|｜"  # the vertical bars of names such as <|end|>, ASCII and full width


class Finder:
    """Finds names, possibly many thousands, by their first two characters and their lengths."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._lengths = frozenset(names), dict[str, list[int]]()
        for first, length in sorted({(name[:2], len(name)) for name in names}, reverse=True):
            self._lengths.setdefault(first, []).append(length)
        firsts = "".join(map(re.escape, sorted({name[0] for name in names})))
        self._firsts = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of the names, the longest at each position; a span may overlap the next."""
        for found in self._firsts.finditer(text):
            start = found.start()
            for length in self._lengths.get(text[start : start + 2], ()):
                if (name := text[start : start + length]) in self._names:
                    yield start, start + len(name)
                    break


class MarkNames:
    """A set of names that can be found in a text."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(name for name in names if len(name) > 1)
        self._whole = Finder(self.names)
        self._parts = Finder(self.names | {inner for name in self.names if (inner := inside(name))})

    def occur_in(self, text: str) -> bool:
        """Whether the text holds a name, or the inside of one that a template would complete."""
        return any(True for _ in self._parts.spans(text))

    def guarded(self, text: str, guard: str, kept: Collection[str] = ()) -> str:
        """Return the text with a guard after the first character of every name except the `kept` ones."""
        cuts = [start + 1 for start, end in self._parts.spans(text) if text[start:end] not in kept]
        return guard.join(text[start:end] for start, end in pairwise([0, *cuts, len(text)]))

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of the names, the longest at each position; a span may overlap the next."""
        return self._whole.spans(text)

    def stretches(self, text: str, quoted: Sequence[Span]) -> Iterator[Span]:
        """Yield the spans of a text that hold names in `quoted` places, each extended to the names around it."""
        left, reach, rest = 0, -1, deque(quoted)
        for start, end in self.spans(text):
            while rest and rest[0][1] <= start:
                rest.popleft()
            if rest and rest[0][0] < end:
                reach = end
            elif start >= reach:
                if reach > left:
                    yield left, start
                left = max(left, end)
        if reach > left:
            yield left, len(text)


def inside(name: str) -> str:
    """Return the part that a template with `<{{ key }}>` completes to the name, or "" if it is an ordinary word."""
    inner = name[1:-1]
    return inner if len(inner) > 1 and (inner[0] in BARS or inner[-1] in BARS) else ""


class QuotedEncoder:
    """Encodes conversations whose quoted names are among `names`."""

    def __init__(self, vocab: Vocab, names: MarkNames) -> None:
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
