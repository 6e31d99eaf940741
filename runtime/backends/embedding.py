"""Embeddings of text from a generating model: the outputs of its last layer, pooled over the tokens.

It has a context of its own. Knows tokens and rows; knows no text.
"""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends import library
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import output_rows
from runtime.core.errors import ContextError, ModelError

BATCH = 64  # rows of a pass: each also takes a row of logits
Vector = NDArray[np.float32]  # [width], normalized to length 1


class Embedder:
    """Converts tokens to vectors, the means of their outputs."""

    def __init__(self, model: LlamaModel, n_ctx: int, threads: int) -> None:
        self.model, self.n_ctx, self.width = model, n_ctx, model.n_embd
        params = model.context_params()
        params.n_ctx, params.n_seq_max = n_ctx, 1
        params.n_batch = params.n_ubatch = params.n_outputs_max = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.embeddings, params.pooling_type = True, lib.LLAMA_POOLING_TYPE_NONE
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise ModelError(f"No context for embeddings could be made for {model.path.name} ({library.why()}).")

    def embed(self, tokens: list[int]) -> Vector:
        """Return the embedding of the tokens. Raises ContextError for more than fit, or none."""
        if not 0 < len(tokens) <= self.n_ctx:
            raise ContextError(
                f"input has {len(tokens)} tokens: it must have from 1 to {self.n_ctx}. Split it, or raise `--context`."
            )
        lib.llama_memory_clear(lib.llama_get_memory(self.handle), True)
        rows = np.concatenate([self._rows(tokens[start : start + BATCH]) for start in range(0, len(tokens), BATCH)])
        pooled = rows.mean(axis=0, dtype=np.float64)
        vector: Vector = (pooled / max(float(np.linalg.norm(pooled)), 1e-12)).astype(np.float32)
        return vector

    def _rows(self, tokens: list[int]) -> Vector:
        """Decode the next tokens; return their rows [n, width]."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        if code := lib.llama_decode(self.handle, lib.llama_batch_get_one(ids, len(tokens))):
            raise ModelError(f"llama.cpp could not embed {len(tokens)} tokens (code {code}). Try a smaller input.")
        return output_rows(self.handle, len(tokens), self.width).copy()

    def close(self) -> None:
        """Free the context; the model stays."""
        if self.handle:
            lib.llama_free(self.handle)
            self.handle = None
