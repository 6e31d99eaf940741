"""A context for measurements whose cache is filled up to any length with copies of a few tokens' keys and values.

A pass over it takes as long, and rounds, as after a text of that length, whose reading would take minutes. The copies
keep their positions, so this is not for layers with sliding windows, which would see all of them. Knows a model and
types of the cache; draws no conclusions.
"""

from __future__ import annotations

import ctypes
import time

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import INT8_P, INT32_P, UINT8_P
from runtime.backends.model import LlamaModel
from runtime.backends.pass_switches import BLOCK, Attention
from runtime.backends.shown_states import rows_at
from runtime.core.draft import Logits, Tokens
from runtime.core.errors import ModelError
from runtime.models.cache_layout import CacheTypes

MAIN, COPY = 0, 1  # ids of sequences
NOT_COPIED = "The cache of this architecture cannot be copied for measurements."


class FilledContext:
    """A context of `n_cells` tokens with these types of keys and values, for passes of up to `n_rows` rows.

    Raises ModelError if the library cannot make it.
    """

    def __init__(self, model: LlamaModel, types: CacheTypes, n_cells: int, n_rows: int, threads: int) -> None:
        params = model.context_params(types)
        params.n_ctx, params.n_seq_max, params.kv_unified = n_cells, 2, True
        params.n_batch = params.n_ubatch = n_rows
        params.n_outputs_max = params.n_outputs_max_per_seq = min(n_rows, BLOCK)
        params.n_threads = params.n_threads_batch = threads
        params.swa_full = True
        self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise ModelError(f"No context for measurements could be made for {model.path.name}. Free some memory.")
        self.attention = Attention(self.handle, types)
        self._memory, self._n_vocab = lib.llama_get_memory(self.handle), model.vocab.n_vocab
        self._n = self._n_cells = 0  # positions, and cells with the copies

    def fill(self, tokens: Tokens, length: int) -> None:
        """Fill the cache with `tokens` [n] and then with copies of their cells, up to `length` cells; more may follow
        in another call.
        """
        if not self._n_cells:
            self.decode(tokens, 0)
            self._n_cells = len(tokens)
        while 2 * self._n_cells <= length:
            self._double()

    def _double(self) -> None:
        """Add a copy of all cells."""
        state = self.state()
        if not lib.llama_state_seq_set_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), COPY):
            raise ModelError(NOT_COPIED)
        lib.llama_memory_seq_cp(self._memory, COPY, MAIN, -1, -1)
        lib.llama_memory_seq_rm(self._memory, COPY, -1, -1)
        self._n_cells *= 2

    def state(self) -> NDArray[np.uint8]:
        """Return the bytes [n] of all that is cached."""
        state = np.empty(lib.llama_state_seq_get_size(self.handle, MAIN), dtype=np.uint8)
        if not lib.llama_state_seq_get_data(self.handle, state.ctypes.data_as(UINT8_P), len(state), MAIN):
            raise ModelError(NOT_COPIED)
        return state

    def decode(self, tokens: Tokens, n_outputs: int) -> Logits:
        """Decode `tokens` [n] in one pass. Return the logits [n_outputs, n_vocab] of the first ones, at most BLOCK."""
        flags = np.zeros(len(tokens), dtype=np.int8)
        flags[:n_outputs] = 1
        batch = lib.llama_batch_get_one(tokens.ctypes.data_as(INT32_P), len(tokens))
        batch.logits = flags.ctypes.data_as(INT8_P)
        self.attention.prepare(len(tokens))
        if code := lib.llama_decode(self.handle, batch):
            raise ModelError(f"llama.cpp could not decode {len(tokens)} tokens for a measurement (code {code}).")
        self._n += len(tokens)
        return self._logits(n_outputs)

    def _logits(self, n: int) -> Logits:
        if not n:
            return np.empty((0, self._n_vocab), dtype=np.float32)
        address = ctypes.addressof(lib.llama_get_logits(self.handle).contents)
        return rows_at(address, n, self._n_vocab).copy()

    def drop(self, n: int) -> None:
        """Remove the last `n` tokens."""
        self._n -= n
        lib.llama_memory_seq_rm(self._memory, MAIN, self._n, -1)

    def seconds(self, tokens: Tokens) -> float:
        """Return the seconds of a pass over `tokens` [n], which are removed again."""
        began = time.perf_counter()
        self.decode(tokens, 1)
        taken = time.perf_counter() - began
        self.drop(len(tokens))
        return taken

    def close(self) -> None:
        """Free the context; the model stays."""
        lib.llama_free(self.handle)
