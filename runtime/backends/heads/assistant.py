"""Gemma 4's assistants: AssistantBackend.

A few layers that attend to the caches of the target's last two layers, and have none of their own. Each row takes a
token and a state: first the target's, then the assistant's own. All rows of a draft have the position of the first, as
in training (Hugging Face's documentation of Gemma 4 Assistant). Knows the library.
"""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import library, shown_states
from runtime.backends.heads.latest_states import LatestStates
from runtime.backends.library import FLOAT_P, INT8_P, INT32_P
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import ModelError


class AssistantBackend(LatestStates):
    """An assistant's context on its target's cache, which it empties: implements Backend, for one row at a time.

    Close it before the target.
    """

    def __init__(self, weights: LlamaModel, target: LlamaBackend, n_trails: int, room: int) -> None:
        super().__init__(target, n_trails, target.model.n_embd)
        self.weights, self.n_vocab = weights, target.n_vocab
        self.n_ctx = self.n_rewindable = target.n_ctx + room
        self.handle = lib.llama_init_from_model(weights.handle, self._params())
        if not self.handle:
            raise ModelError(f"no context could be made for the head in {weights.path.name} ({library.why()})")
        target.empty()  # the library has forgotten which cells are used
        shown_states.show_hidden(self.handle, masked=True)
        self._row, self._batch = OneRow(target.model.n_embd), lib.llama_batch()
        self._row.point(self._batch)
        self._drafted: Tokens | None = None  # the context of the last row, until the target's next pass
        target.shown.show((), self.feed)

    def _params(self) -> lib.llama_context_params:
        params = self.weights.context_params(self.target.model.cache_types)
        params.n_ctx, params.kv_unified = self.target.n_cells, True
        params.n_seq_max = lib.llama_n_seq_max(self.target.handle)
        params.n_batch = params.n_ubatch = params.n_outputs_max = params.n_seq_max
        params.n_outputs_max_per_seq, params.swa_full = 1, True
        params.ctx_other = self.target.handle  # whose cache it reads
        return params

    def set_threads(self, one: int, many: int) -> None:
        """Set the threads for passes of one row and of several rows."""
        lib.llama_set_n_threads(self.handle, one, many)

    def feed(self, tokens: Tokens, start: int, states: Rows) -> None:
        """See LatestStates."""
        self._drafted = None
        super().feed(tokens, start, states)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [1, n_vocab] that follow `context`, valid until the next call. Where the target's state is not
        known, it is taken to be zero behind what is cached.
        """
        trail, n = self.found(context)
        before, self._drafted = self._drafted, None
        if before is not None and np.array_equal(before, context[:-1]):
            self._decode(int(context[-1]), self._own_state())
        else:
            self._row.stand(*self._place(context[: n + 1] if n else context))
            state = trail.states(n) if n else np.zeros((1, self.target.model.n_embd), dtype=np.float32)
            for token in context[n if n else -1 :].tolist():
                self._decode(token, state)
                state = self._own_state()
        self._drafted = context.copy() if n else None
        return np.ctypeslib.as_array(lib.llama_get_logits(self.handle), (1, self.n_vocab))

    def _place(self, context: Tokens) -> tuple[int, int]:
        """Return the target's sequence and the position of the last token of `context`, with no cells from there on."""
        if self.knows(context):
            self.target.cut_to(context)
        sequence = self.target.sequence
        return sequence, lib.llama_memory_seq_pos_max(self.target.memory, sequence) + 1

    def _own_state(self) -> Rows:
        """Return the assistant's state [1, width] after the last row."""
        return shown_states.hidden_rows(self.handle, 1, self.target.model.n_embd).copy()

    def _decode(self, token: int, state: Rows) -> None:
        self._row.fill(token, state)
        if code := lib.llama_decode(self.handle, self._batch):
            raise ModelError(f"{self.weights.path.name} could not decode (code {code}): {library.why()}")

    def close(self) -> None:
        """Free the context; the weights stay."""
        if self.handle:
            super().close()
            lib.llama_free(self.handle)
            self.handle = None


class OneRow:
    """The arrays of a batch of one row: a token, a state of that width, a position and a sequence."""

    def __init__(self, width: int) -> None:
        self._token, self._position = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
        self._state: Rows = np.zeros((1, width), dtype=np.float32)
        self._one, self._flag = np.ones(1, dtype=np.int32), np.ones(1, dtype=np.int8)
        self._sequence = ctypes.c_int32(0)
        self._sequences = (INT32_P * 1)(ctypes.pointer(self._sequence))

    def point(self, batch: lib.llama_batch) -> None:
        """Point a batch at the arrays."""
        batch.n_tokens = 1
        batch.token = ctypes.cast(self._token.ctypes.data, INT32_P)
        batch.embd = ctypes.cast(self._state.ctypes.data, FLOAT_P)
        batch.pos = ctypes.cast(self._position.ctypes.data, INT32_P)
        batch.n_seq_id = ctypes.cast(self._one.ctypes.data, INT32_P)
        batch.seq_id = ctypes.cast(self._sequences, ctypes.POINTER(INT32_P))
        batch.logits = ctypes.cast(self._flag.ctypes.data, INT8_P)

    def stand(self, sequence: int, position: int) -> None:
        """Set the sequence and the position."""
        self._sequence.value, self._position[0] = sequence, position

    def fill(self, token: int, state: Rows) -> None:
        """Set the token and the state [1, width]."""
        self._token[0], self._state[:] = token, state
