"""Images among token ids: a run of ids below 0, one for each position, that are derived from what the image shows.

So two prompts share an image where they have the same ids, and nobody who compares ids needs to know of images. Knows
ids; knows no pixels and no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Tokens

SHORT = 512  # positions of an image that is read in one pass: where its rows attend to each other, it must not be cut
# Tokens of a piece of a prompt where rounding depends on the width of passes. It does not depend on speed or on other
# sequences, and so neither does the text of a reply with a seed. LONGER times as many are read 4 to 7% faster, where
# they round alike
PIECE, LONGER = 128, 2
SIGN, MOVES = np.int32(-(2**31)), np.int32(2)  # of an id: it is an image's; the next token has the next position


def ids_of(key: bytes, n: int, n_positions: int | None = None) -> Tokens:
    """Return the `n` ids of an image with this key, which tells it from all others: a hash of its pixels and of how
    they are encoded. Two images share a run of ids only if their keys are the same. Images with positions in three
    dimensions take fewer positions than tokens, which the ids tell: all of their tokens begin at one position.
    """
    found = np.frombuffer(hashlib.shake_256(key).digest(4 * n), dtype="<i4").astype(np.int32)
    found = (found & ~np.int32(3)) | SIGN  # even, because NO_TOKEN is not
    found[n - (n if n_positions is None else n_positions) :] |= MOVES
    return found


def n_still(tokens: Tokens) -> int:
    """Return the number of tokens that take no position of their own."""
    return int(np.count_nonzero((tokens & (SIGN | MOVES)) == SIGN))


def position(tokens: Tokens, n: int) -> int:
    """Return the position that follows the first `n` tokens; within an image that takes fewer of them, an earlier one
    of its own.
    """
    return n - n_still(tokens[:n])


def around(tokens: Tokens, n: int) -> tuple[int, int]:
    """Return `n` twice; within images that take fewer positions than tokens, their begin and end: a cache, which
    removes positions, has all of them or none.
    """
    if not 0 < n < len(tokens) or tokens[n] >= 0 or tokens[n - 1] >= 0:
        return n, n
    begin, end = stretch(tokens, n)
    return (begin, end) if n_still(tokens[begin:end]) else (n, n)


def has_images(tokens: Tokens) -> bool:
    """Return whether there are positions of images among `tokens` [n]."""
    return bool(len(tokens) and tokens.min() < 0)


def text_only(tokens: Tokens) -> Tokens:
    """Return the tokens of text."""
    return tokens[tokens >= 0] if has_images(tokens) else tokens


def same_kind_end(tokens: Tokens, start: int, end: int) -> int:
    """Return the end of the positions from `start` on, up to `end`, that are all of text or all of images."""
    is_text = tokens[start:end] >= 0
    same = is_text == is_text[0]
    return end if same.all() else start + int(same.argmin())


def images_end(tokens: Tokens, start: int) -> int:
    """Return the position after the last image from `start` on; 0 if there is none."""
    places = np.flatnonzero(tokens[start:] < 0)
    return start + int(places[-1]) + 1 if len(places) else 0


def stretch(tokens: Tokens, at: int) -> tuple[int, int]:
    """Return the first and the last position, plus one, of the images around position `at`."""
    before, after = tokens[:at][::-1] >= 0, tokens[at:] >= 0
    begin = at - (int(before.argmax()) if before.any() else at)
    return begin, at + int(after.argmax()) if after.any() else len(tokens)


def is_within(tokens: Tokens, n: int) -> bool:
    """Return whether the first `n` tokens end within images that are read in one pass."""
    if not 0 < n < len(tokens) or tokens[n] >= 0 or tokens[n - 1] >= 0:
        return False
    begin, end = stretch(tokens, n)
    return end - begin <= SHORT


def past_images(tokens: Tokens, end: int) -> int:
    """Return the end of a piece of `tokens`, moved behind images that must not be cut."""
    return stretch(tokens, end)[1] if is_within(tokens, end) else end


def resumable(tokens: Tokens, n: int, is_exact: bool) -> int:
    """Return the most of the first `n` tokens after which reading can resume as if all had been read at once: no image
    is cut that must not be. If it `is_exact`, where rounding depends on widths, a piece of the usual reading, of which
    images and the text after them begin one each, begins there.
    """
    if not has_images(tokens[: n + 1]):
        return n
    if is_within(tokens, n):
        return stretch(tokens, n)[0]
    changes = np.flatnonzero(np.diff(tokens[: n + 1] < 0)) + 1
    return max(n - n % PIECE, int(changes[-1]) if len(changes) else 0) if is_exact else n


# The positions [4, n] of an image's tokens, by dimension, where the image is first, and where it begins one later
Places = tuple[NDArray[np.int32], NDArray[np.int32]]


class ImageReader(Protocol):
    """A vision encoder."""

    kind: str  # such as gemma3
    n_needed: int  # estimated bytes of its weights and buffers

    def ids(self, data: bytes) -> Sequence[int]:
        """Return the ids of an image from the bytes of its file, among them those of text that the encoder puts around
        it. Raises PictureError.
        """

    def embed(self, tokens: Sequence[int], is_cancelled: Callable[[], bool]) -> Future[list[ImageRun]]:
        """Compute the embeddings of a prompt's images, on a thread that does nothing else: one image may take a minute.
        They stay known as long as what is returned is held. Raises ModelError.

        The computation raises StoppedError between two images if it is cancelled, and ModelError.
        """

    def close(self) -> None:
        """Free the encoder."""

    def rows(self, tokens: Tokens, start: int, end: int) -> ImageRows:
        """Return the first of the tokens [start, end), which are those of images: as many as are read in one pass.
        Raises ModelError.
        """


class ImageRows(NamedTuple):
    """Tokens of an image to be read in one pass: embeddings [rows, width], and whether each attends only to those
    before it.
    """

    rows: NDArray[np.float32]
    is_causal: bool
    places: NDArray[np.int32] | None = None  # [4, rows]: positions by dimension; None: one each, which follow


class ImageRun:
    """A part of an image that is read as one: its ids [n], and its embeddings, once they are computed, as `rows`
    [n, width]. Until then it has what they are computed from, the library's `chunk`, which `free` frees.
    """

    def __init__(
        self, ids: Tokens, chunk: Any, free: Callable[[Any], object], is_causal: bool, places: Places | None = None
    ) -> None:
        self.ids, self.chunk, self._free, self.places = ids, chunk, free, places
        self.is_causal = is_causal  # whether a row attends only to those before it
        self.rows: NDArray[np.float32] | None = None

    def keep(self, rows: NDArray[np.float32]) -> None:
        """Keep the embeddings, and free what they were computed from."""
        self.rows = rows
        self._release()

    def _release(self) -> None:
        chunk, self.chunk = self.chunk, None
        if chunk is not None:
            self._free(chunk)

    def __del__(self) -> None:
        self._release()
