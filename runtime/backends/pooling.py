"""Vectors of texts from embedding models, and scores from reranking models: llama.cpp pools the outputs of its last
layer as the file specifies. The texts of a pass are sequences of their own in one batch.

Knows tokens and rows; knows no text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends import library
from runtime.backends.library import INT32_P
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import rows_at
from runtime.core.errors import ContextError, ModelError
from runtime.models.cache_layout import HALVES

MAX_ROWS, MAX_TEXTS = 512, 64  # of a pass
LOGITS = 2**26  # floats: the library keeps room for the logits of every row, though pooling computes none
Inputs = Sequence[Sequence[int]]  # the token ids of each text
Vectors = NDArray[np.float32]  # [n, width]


def rows_for(n_vocab: int) -> int:
    """Return the most rows of a pass over several texts, or over a piece of a long one."""
    return max(MAX_TEXTS, min(MAX_ROWS, LOGITS // max(1, n_vocab) // MAX_TEXTS * MAX_TEXTS))


def whole(n: int) -> int:
    """Return a number of rows that is a multiple of the sequences, which the library's largest graph needs."""
    return -(-n // MAX_TEXTS) * MAX_TEXTS


class Pooler:
    """Converts texts to vectors of length 1, or to scores [n, 1]. Its context grows when a text needs more room.

    Where attention looks both ways, a text is one piece of a pass. Where it looks back, and the last token counts, a
    long text is read in several.
    """

    def __init__(self, model: LlamaModel, n_ctx: int) -> None:
        self.model, self.n_ctx, self.ranks = model, n_ctx, model.pooling.ranks
        self.width = 1 if self.ranks else int(lib.llama_model_n_embd_out(model.handle))
        self.n_rows = rows_for(model.vocab.n_vocab)
        self._handle: Any = None
        self._memory: Any = None  # of keys and values; encoders have none
        self._room, self._threads = 0, 1
        self._open(self.n_rows)

    def _open(self, room: int) -> None:
        """Open a context for passes over `room` tokens. Raises ModelError."""
        self.close()
        params = self.model.context_params(HALVES)
        params.n_ctx, params.n_seq_max, params.kv_unified = room, MAX_TEXTS, True
        params.n_batch = params.n_ubatch = self.n_rows if self.model.pooling.reads_last else room
        params.n_threads = params.n_threads_batch = self._threads
        params.embeddings = True
        params.pooling_type = self.model.pooling.number or lib.LLAMA_POOLING_TYPE_MEAN
        self._handle = lib.llama_init_from_model(self.model.handle, params)
        if not self._handle:
            name = self.model.path.name
            raise ModelError(
                f"There is no memory for texts of {room} tokens with {name} ({library.why()}). Send shorter texts, or "
                "lower `--context`."
            )
        self._room, self._memory = room, lib.llama_get_memory(self._handle)

    def set_threads(self, n: int) -> None:
        """Compute with `n` threads from now on."""
        if n != self._threads and self._handle:
            lib.llama_set_n_threads(self._handle, n, n)
        self._threads = n

    def pool(self, inputs: Inputs) -> Vectors:
        """Return the vectors or scores [n, width] of the texts of one pass: one text, or several of `n_rows` tokens
        together. Raises ContextError for a text without tokens or with too many, and ModelError.
        """
        assert len(inputs) <= MAX_TEXTS
        lengths = [*map(len, inputs)]
        if not all(0 < n <= self.n_ctx for n in lengths):
            raise ContextError(
                f"input has {max(lengths)} tokens: it must have from 1 to {self.n_ctx}. Split it, or raise `--context`."
            )
        if (n := sum(lengths)) > self._room or not self._handle:
            self._open(max(self.n_rows, min(whole(max(self.n_ctx, n)), 1 << (n - 1).bit_length())))
        if self._memory:
            lib.llama_memory_clear(self._memory, False)
        self._decode(inputs)
        return self._normalized(np.array([self._row(i) for i in range(len(inputs))]))

    def _decode(self, inputs: Inputs) -> None:
        """Decode the texts in as few pieces as the context takes."""
        tokens = np.concatenate([np.asarray(ids, np.int32) for ids in inputs])
        places = np.concatenate([np.arange(len(ids), dtype=np.int32) for ids in inputs])
        texts = np.repeat(np.arange(len(inputs), dtype=np.int32), [*map(len, inputs)])
        size = self.n_rows if self.model.pooling.reads_last else len(tokens)
        for start in range(0, len(tokens), size):
            piece = slice(start, start + size)
            if code := decode(self._handle, tokens[piece], places[piece], texts[piece]):
                raise ModelError(f"llama.cpp could not read {len(tokens)} tokens (code {code}). Try a smaller input.")

    def _row(self, text: int) -> Vectors:
        """Return the pooled output [width] of a text of the last pass, valid until the next one. Raises ModelError if
        there is none.
        """
        row = lib.llama_get_embeddings_seq(self._handle, text)
        if not row:
            raise ModelError(f"llama.cpp made no vector with {self.model.path.name}. Choose another file.")
        found: Vectors = rows_at(ctypes.addressof(row.contents), 1, self.width)[0]
        return found

    def _normalized(self, rows: Vectors) -> Vectors:
        if self.ranks:
            return rows
        lengths = np.maximum(np.sqrt(np.vecdot(rows, rows)), 1e-12)
        vectors: Vectors = np.divide(rows, lengths[:, None], dtype=np.float32)
        return vectors

    def shrink(self) -> None:
        """Free a context that is larger than most texts need, if a long one has made it so."""
        if self._room > self.n_rows:
            self.close()

    def close(self) -> None:
        """Free the context; the model stays."""
        if self._handle:
            lib.llama_free(self._handle)
        self._handle, self._room = None, 0


def decode(handle: Any, tokens: NDArray[np.int32], places: NDArray[np.int32], texts: NDArray[np.int32]) -> int:
    """Decode rows [n] of several sequences, given by tokens, positions and sequences; return the library's code."""
    n = len(tokens)
    addresses = texts.ctypes.data + texts.itemsize * np.arange(n, dtype=np.uintp)  # of each row's sequence
    sequences = ctypes.cast(addresses.ctypes.data, ctypes.POINTER(INT32_P))
    flags, counts = np.ones(n, np.int8), np.ones(n, np.int32)
    arrays = [each.ctypes.data_as(INT32_P) for each in (tokens, places, counts)]
    batch = lib.llama_batch(n, arrays[0], None, arrays[1], arrays[2], sequences, flags.ctypes.data_as(library.INT8_P))
    return int(lib.llama_decode(handle, batch))
