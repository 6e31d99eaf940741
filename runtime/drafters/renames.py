"""Finds a word that a reply replaced in the rest of its source, where other tokens spell it: a name after a bracket is
not the tokens of that name after a space. Knows texts only as the bytes of tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

LETTER = rb"[\w\x80-\xff]"
NO_LETTER, WORD = re.compile(rb"[^\w\x80-\xff]"), re.compile(LETTER + rb"{1,64}")
PATH = re.compile(rb"[\w\x80-\xff.]{1,64}")
END_OF_BLOCK = re.compile(rb"```(?:\n|\Z)")
NEAR = 8  # tokens before and after a difference in which its word may begin and end
AHEAD = 4096  # tokens in which the word is looked for
MAX_PLACES = 64  # places of a word that are tokenized


class Spelling(NamedTuple):
    """The bytes of tokens, and the tokens of a text."""

    pieces: Mapping[int, bytes]
    encode: Callable[[str], Sequence[int]]

    def text(self, tokens: Sequence[int]) -> bytes:
        """Return the bytes of these tokens."""
        return b"".join([self.pieces[token] for token in tokens])

    def within(self, text: bytes) -> tuple[int, ...]:
        """Return the tokens of a text that follows another one; none where it is not text by itself.

        It is tokenized after a line break, as vocabularies of SentencePiece put a space before what they are given.
        """
        tokens = tuple(self.encode("\n" + text.decode("utf8", "replace")))
        while tokens and self.text(tokens) != text:
            tokens = tokens[1:]
        return tokens

    def ends_block(self, tokens: Sequence[int], at: int) -> bool:
        """Return whether the fence that ends a block of code begins with the token at an index."""
        if not self.pieces[tokens[at]].startswith(b"`"):
            return False
        return END_OF_BLOCK.match(self.text(tokens[at : at + 3])) is not None


Replaced = tuple[tuple[int, ...], tuple[int, ...]]  # tokens of a source, and those in their place


def renamed(spelling: Spelling, source: Sequence[int], begin: int, end: int, new: Sequence[int]) -> Iterator[Replaced]:
    """Yield the replacements of a word in the rest of a source, if `new` replaced source[begin:end] in a reply and the
    difference is one word for another.
    """
    text_of = spelling.text
    before, after = text_of(source[max(0, begin - NEAR) : begin]), text_of(source[end : end + NEAR])
    old_word, new_word, n_after = whole_words(before, text_of(source[begin:end]), text_of(new), after)
    if old_word != new_word and WORD.fullmatch(old_word) and PATH.fullmatch(new_word):
        yield from respelled(spelling, source[end : end + AHEAD], n_after, old_word, new_word)


def whole_words(before: bytes, old: bytes, new: bytes, after: bytes) -> tuple[bytes, bytes, int]:
    """Return what differs between two texts that stand between the same ones, with the rest of the words in which it
    begins and ends, and how many bytes of `after` are a part of the last one.
    """
    n = n_alike(old, new)
    before, old, new = before + old[:n], old[n:], new[n:]
    n = n_alike(old[::-1], new[::-1])
    old, new, after = old[: len(old) - n], new[: len(new) - n], old[len(old) - n :] + after
    head, tail = NO_LETTER.split(before)[-1], NO_LETTER.split(after, maxsplit=1)[0]
    return head + old + tail, head + new + tail, max(0, len(tail) - n)


def n_alike(a: bytes, b: bytes) -> int:
    """Return the number of bytes with which both begin."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def respelled(spelling: Spelling, source: Sequence[int], begin: int, old: bytes, new: bytes) -> Iterator[Replaced]:
    """Yield for each place of a word in a source, from byte `begin` on, the tokens that spell it there, and those with
    another word in it.
    """
    pieces = [spelling.pieces[token] for token in source]
    ends, text = list(accumulate(map(len, pieces))), b"".join(pieces)
    starts = [0, *ends]
    word = re.compile(rb"(?<!" + LETTER + rb")" + re.escape(old) + rb"(?!" + LETTER + rb")")
    for match in islice(word.finditer(text, begin), MAX_PLACES):
        first, last = bisect_right(ends, match.start()), bisect_left(ends, match.end())
        spelled = text[starts[first] : match.start()] + new + text[match.end() : ends[last]]
        if tokens := spelling.within(spelled):
            yield tuple(source[first : last + 1]), tokens
