"""Embeddings from a generating model: the outputs of its last layer, pooled over the tokens of a text and its images.

It has a context of its own. Knows token ids and rows; knows no text.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import Future
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends import library
from runtime.backends.library import FLOAT_P, INT32_P
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import output_rows
from runtime.core.draft import Tokens
from runtime.core.errors import ContextError, ModelError
from runtime.core.image_runs import ImageRun, position, same_kind_end

BATCH = 64  # rows of a pass: each also takes a row of logits
Vector = NDArray[np.float32]  # [width], normalized to length 1


class Embedder:
    """Converts tokens to vectors, the means of their outputs."""

    def __init__(self, model: LlamaModel, n_ctx: int, threads: int) -> None:
        self.model, self.n_ctx, self.width = model, n_ctx, model.n_embd
        self._threads, self._n_rows = threads, 0  # rows of a pass of the context, at most
        self._handle: Any = None
        self._asked: tuple[list[int], Future[list[ImageRun]] | None] = (
            [],
            None,
        )  # the latest text with images, and these

    def _open(self, n_rows: int) -> None:
        """Make a context for passes of `n_rows` rows. Raises ModelError."""
        self.close()
        params = self.model.context_params()
        params.n_ctx, params.n_seq_max = self.n_ctx, 1
        params.n_batch = params.n_ubatch = params.n_outputs_max = n_rows
        params.n_threads = params.n_threads_batch = self._threads
        params.embeddings, params.pooling_type = True, lib.LLAMA_POOLING_TYPE_NONE
        self._handle = lib.llama_init_from_model(self.model.handle, params)
        if not self._handle:
            name = self.model.path.name
            raise ModelError(f"No context for embeddings could be made for {name} ({library.why()}).")
        self._n_rows = n_rows

    def is_ready(self, tokens: list[int]) -> bool:
        """Return whether the images among the tokens are encoded, for which `embed` would wait. That begins now or,
        while others are encoded, at a later call. Raises ModelError.
        """
        asked, images = self._asked
        if asked != tokens and (images is None or images.done()):
            asked, images = self._asked = tokens, self._images(tokens)
        return asked == tokens and (images is None or images.done())

    def embed(self, tokens: list[int]) -> Vector:
        """Return the embedding of the tokens. Raises ContextError for more than fit, or none, and ModelError."""
        if not 0 < len(tokens) <= self.n_ctx:
            raise ContextError(
                f"input has {len(tokens)} tokens: it must have from 1 to {self.n_ctx}. Split it, or raise `--context`."
            )
        ids, rows, n = np.array(tokens, dtype=np.int32), list[Vector](), 0
        images = found.result() if (found := self._images(tokens)) else []  # which stay known as long as they are held
        whole = max((len(run.ids) for run in images if not run.is_causal), default=0)  # rows that need one pass
        if max(BATCH, whole) > self._n_rows:
            self._open(max(BATCH, whole))
        lib.llama_memory_clear(lib.llama_get_memory(self._handle), True)
        while n < len(ids):
            rows.append(self._image_rows(ids, n) if ids[n] < 0 else self._text_rows(ids, n))
            n += len(rows[-1])
        pooled = np.concatenate(rows).mean(axis=0, dtype=np.float64)
        vector: Vector = (pooled / max(float(np.linalg.norm(pooled)), 1e-12)).astype(np.float32)
        return vector

    def _images(self, tokens: list[int]) -> Future[list[ImageRun]] | None:
        """Return the images among the tokens, once they are encoded; None if there are none. Raises ModelError."""
        return self.model.vision.embed(tokens, lambda: False) if self.model.vision and min(tokens) < 0 else None

    def _text_rows(self, ids: Tokens, start: int) -> Vector:
        """Return the outputs [n, width] of the next tokens of text."""
        part = ids[start : same_kind_end(ids, start, min(len(ids), start + self._n_rows))]
        batch = lib.llama_batch(len(part), part.ctypes.data_as(INT32_P))
        return self._decoded(batch, position(ids, start) + np.arange(len(part), dtype=np.int32))

    def _image_rows(self, ids: Tokens, start: int) -> Vector:
        """Return the outputs [n, width] of the next tokens of an image."""
        assert self.model.vision
        end = same_kind_end(ids, start, min(len(ids), start + self._n_rows))
        rows, is_causal, places = self.model.vision.rows(ids, start, end)
        batch = lib.llama_batch(len(rows), None, ctypes.cast(rows.ctypes.data, FLOAT_P))
        lib.llama_set_causal_attn(self._handle, is_causal)
        if places is None:
            places = position(ids, start) + np.arange(len(rows), dtype=np.int32)
        try:
            return self._decoded(batch, places)
        finally:
            lib.llama_set_causal_attn(self._handle, True)

    def _decoded(self, batch: lib.llama_batch, places: NDArray[np.int32]) -> Vector:
        """Decode a batch at these positions, [n] or [4, n]; return the outputs [n, width]. Raises ModelError."""
        batch.pos = places.ctypes.data_as(INT32_P)
        if code := lib.llama_decode(self._handle, batch):
            raise ModelError(f"llama.cpp could not embed {batch.n_tokens} tokens (code {code}). Try a smaller input.")
        return output_rows(self._handle, batch.n_tokens, self.width).copy()

    def close(self) -> None:
        """Free the context; the model stays."""
        if self._handle:
            lib.llama_free(self._handle)
        self._handle, self._n_rows = None, 0
