"""The heads that llama.cpp computes: EAGLE-3, MTP, DFlash and DSpark, and Gemma 4's assistants.

- EAGLE-3 (Li et al., arXiv 2503.01840): a layer in a file of its own, whose encoder combines the inputs of three of
  the target's layers into one state.
- MTP (DeepSeek-V3, arXiv 2412.19437, section 2.2): layers at the end of the target's own file that only draft, or in
  a file of their own. They take the target's last hidden state and the token after it, in a context of their own.
- DFlash (Chen et al., arXiv 2602.06036) and DSpark: a few layers in their own files, which draft a block in one pass.
  The target's states become cells of their cache directly, without tokens. A block is the newest token followed by mask
  tokens, all of which attend to one another.
- Assistants: a few layers that attend to the caches of the target's last two layers, and have none of their own. Each
  row takes a token and a state: first the target's, then the assistant's own. All rows of a draft have the position of
  the first, as in training (Hugging Face's documentation of Gemma 4 Assistant).
"""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import library, shown_states
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.trail import HeadStep, LatestStates, Trail
from runtime.backends.library import INT32_P
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.seat import RowBatch
from runtime.backends.shown_states import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.core.errors import ModelError
from runtime.models.block_heads import BlockShape
from runtime.models.heads import FEW_ROWS, HEAD_ROWS


class MtpBackend(HeadBackend):
    """The drafting layer of a target that was loaded with it, or of these `weights` from another file."""

    offset = 1
    few_rows = FEW_ROWS
    context_type = lib.LLAMA_CONTEXT_TYPE_MTP

    def __init__(self, target: LlamaBackend, n_trails: int, room: int, weights: LlamaModel | None = None) -> None:
        super().__init__(weights or target.model, target, target.model.n_embd, n_trails, room)
        target.shown.show((), self.feed)


class EagleBackend(HeadBackend):
    """An EAGLE-3 head that reads the inputs of these layers of its target."""

    def __init__(
        self, weights: LlamaModel, target: LlamaBackend, layers: tuple[int, ...], n_trails: int, room: int
    ) -> None:
        super().__init__(weights, target, len(layers) * target.model.n_embd, n_trails, room)
        target.shown.show(layers, self.feed)

    def _taken(self, trail: Trail, states: Rows) -> Rows:
        self._make_room(trail, trail.n_cells, len(states))
        batch = self._batch.of_states(trail.sequence, trail.n_cells + self.offset, None, states)
        if code := lib.llama_encode(self.handle, batch):
            raise self._error("encode", code)
        return shown_states.hidden_rows(self.handle, len(states), self.width).copy()


class DflashBackend(HeadBackend):
    """A DFlash or DSpark head. `forward` returns a row of logits for each drafted token of a block, at most `room`."""

    lag = 0

    def __init__(self, weights: LlamaModel, target: LlamaBackend, shape: BlockShape, n_trails: int, room: int) -> None:
        super().__init__(weights, target, len(shape.layers) * target.model.n_embd, n_trails, room)
        lib.llama_set_causal_attn(self.handle, shape.is_causal)
        self._n_blank, most = shape.n_blank, min(shape.n_tokens, HEAD_ROWS)
        n_guessed = min(most - shape.n_blank, room)
        self._block: Tokens = np.full(shape.n_blank + n_guessed, shape.mask, dtype=np.int32)
        self._has_parts = lib.llama_model_rope_type(weights.handle) == lib.LLAMA_ROPE_TYPE_MROPE
        target.shown.show(shape.layers, self.feed)

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT, exact: bool = True) -> Logits:
        """Return logits [block, n_vocab]: row i predicts token i after `context`, whatever tokens are chosen between.

        They are valid until the next call.
        """
        trail, last = self._trail(context), len(context) - 1
        self._use(trail)
        trail.cut(min(trail.shared(context), last))
        if trail.n_known < last:
            trail.start(last)
        self._take_in(trail, context)
        self._block[0] = context[-1]
        self._make_room(trail, last, len(self._block))
        self._run(trail, self._batch.of_states(trail.sequence, last + self.offset, self._block, None))
        lib.llama_memory_seq_rm(self.memory, trail.sequence, -1 if last == trail.begin else last, -1)
        return self._logits()[self._n_blank :]

    def _add_cells(self, trail: Trail, tokens: Tokens, waiting: Rows, gives_logits: bool) -> list[HeadStep]:
        """Turn the target's states into cells; return no steps, because a block is not continued."""
        n = len(waiting)
        self._make_room(trail, trail.n_cells, n)
        batch = self._batch.of_states(trail.sequence, trail.n_cells + self.offset, None, waiting, gives_logits=False)
        if self._has_parts:  # M-RoPE takes four sections of positions, one after another; the last is 0
            place = self._batch.positions[trail.n_cells : trail.n_cells + n]
            self._parts = np.concatenate([place, place, place, np.zeros_like(place)])
            batch.pos = ctypes.cast(self._parts.ctypes.data, INT32_P)
        self._run(trail, batch)
        return []


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
        self._batch, self._at = RowBatch(self.n_ctx + 1, 1, 1), (0, 0)  # sequence and position of its rows
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
            self._at = self._place(context[: n + 1] if n else context)
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
        sequence = self.target.seat.sequence
        return sequence, lib.llama_memory_seq_pos_max(self.target.memory, sequence) + 1

    def _own_state(self) -> Rows:
        """Return the assistant's state [1, width] after the last row."""
        return shown_states.hidden_rows(self.handle, 1, self.target.model.n_embd).copy()

    def _decode(self, token: int, state: Rows) -> None:
        batch = self._batch.of_states(*self._at, np.array([token], dtype=np.int32), state)
        if code := lib.llama_decode(self.handle, batch):
            raise ModelError(f"{self.weights.path.name} could not decode (code {code}): {library.why()}")

    def close(self) -> None:
        """Free the context; the weights stay."""
        if self.handle:
            super().close()
            lib.llama_free(self.handle)
            self.handle = None
