"""Decodes the images of a conversation, and the tokens before each, in batches.

Knows positions and batches; which of them are missing, the backends find out.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp.llama_cpp as lib

from runtime.backends.held import HeldConversations
from runtime.backends.library import FLOAT_P, INT32_P
from runtime.core.image_runs import ImageReader, images_end, same_kind_end


class ImageDecoding(HeldConversations):
    """A conversation that may have images."""

    handle: Any
    n_batch: int

    def _window(self, start: int, rows: int, n_outputs: int) -> lib.llama_batch:
        """Return a batch over the seat's tokens [start, start + rows), with logits for the last `n_outputs`."""
        raise NotImplementedError

    def _run(self, batch: lib.llama_batch, start: int, n_held: int) -> None:
        """Decode a batch that begins at position `start`; after it the main sequence has `n_held` tokens."""
        raise NotImplementedError

    def _decode_images(self, vision: ImageReader, start: int, end: int, n_outputs: int, most: int) -> int:
        """Decode the seat's tokens [start, end) up to the last image, with logits for the last `n_outputs` if it ends
        there. Return the next position.
        """
        while stop := images_end(self.seat.tokens[:end], start):
            if self.seat.tokens[start] < 0:
                start = self._decode_embeddings(vision, start, stop, n_outputs if stop == end else 0)
            else:
                rows = min(most, same_kind_end(self.seat.tokens, start, stop) - start)
                self._run(self._window(start, rows, 0), start, start + rows)
                start += rows
        return start

    def _decode_embeddings(self, vision: ImageReader, start: int, end: int, n_outputs: int) -> int:
        """Decode a batch of the image at position `start`, with logits for the last `n_outputs` if it ends at `end`.
        Return the next position.
        """
        most = min(same_kind_end(self.seat.tokens, start, end), start + self.n_batch)
        rows, is_causal, places = vision.rows(self.seat.tokens, start, most)
        stop = start + len(rows)
        batch = self._window(start, len(rows), n_outputs if stop == end else 0)
        batch.token, batch.embd = None, ctypes.cast(rows.ctypes.data, FLOAT_P)
        if places is not None:
            batch.pos = ctypes.cast(places.ctypes.data, INT32_P)
        lib.llama_set_causal_attn(self.handle, is_causal)
        try:
            self._run(batch, start, stop)
        finally:
            batch.embd = None
            lib.llama_set_causal_attn(self.handle, True)
        return stop
