"""Prompts with images: each stands in the text where its mark is, which no chat template changes.

Knows text and the bytes of files; knows no pixels and no ids.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from runtime.conversation.quoting import Rendered

if TYPE_CHECKING:
    from runtime.conversation.prompt import Prompt

NO_EYES = (
    "{name} cannot see images: it has no vision encoder. Name its mmproj file with `--mmproj FILE`, choose a model "
    "with one, or leave the image out."
)
MARK = re.compile(r"<__image_[0-9a-f]{32}__>")

Place = Callable[[bytes], Sequence[int]]  # returns the ids of an image from the bytes of its file


@dataclass(frozen=True, slots=True)
class Pictured:
    """A prompt with the marks of images, and the bytes of their files."""

    prompt: Prompt
    images: tuple[bytes, ...]


def mark_of(image: bytes) -> str:
    """Return the mark of an image, a hash of its file: a text cannot refer to an image that did not come with it."""
    return mark_of_hash(hashlib.sha256(image).hexdigest())


def mark_of_hash(digest: str) -> str:
    """Return the mark of an image from the SHA-256 of its file, in hexadecimal digits."""
    return f"<__image_{digest[:32]}__>"


def marks_in(text: str, replaced: Callable[[str], str]) -> str:
    """Return a text with the marks of images replaced."""
    return MARK.sub(lambda found: replaced(found[0]), text)


def with_images(prompt: Prompt, images: Collection[bytes]) -> Prompt:
    """Return a prompt with these images, each once; the prompt itself without any."""
    return Pictured(prompt, tuple(dict.fromkeys(images))) if images else prompt


class SeenImages:
    """The ids of a prompt's images, by their marks."""

    def __init__(self, ids: Mapping[str, Sequence[int]]) -> None:
        self._ids = ids

    @property
    def known(self) -> set[int]:
        """The ids of all."""
        return {*chain(*self._ids.values())}

    def n_positions(self, text: str) -> int:
        """Return the number of ids of the images that a text has."""
        return sum(len(ids) for mark, ids in self._ids.items() if mark in text)

    def encode(self, rendered: Rendered, encode: Callable[[Rendered], list[int]]) -> list[int]:
        """Return the ids of a text, which `encode` returns for each part of it, and those of its images between."""
        if not self._ids:
            return encode(rendered)
        ids = list[int]()
        for each in pieces(rendered, self._ids):
            ids += self._ids[each] if isinstance(each, str) else encode(each) if each.text else ()
        return ids


def pieces(rendered: Rendered, marks: Collection[str]) -> Iterator[Rendered | str]:
    """Yield the parts of a text and the marks between them, of those in `marks`."""
    text, at = rendered.text, 0
    for found in MARK.finditer(text):
        if found[0] in marks:
            yield part(rendered, at, found.start())
            yield found[0]
            at = found.end()
    yield part(rendered, at, len(text))


def part(rendered: Rendered, start: int, end: int) -> Rendered:
    """Return a part of a text, with the quoted spans in it."""
    if (start, end) == (0, len(rendered.text)):
        return rendered
    inside = tuple((max(a, start) - start, min(b, end) - start) for a, b in rendered.quoted if a < end and b > start)
    return Rendered(rendered.text[start:end], inside)
