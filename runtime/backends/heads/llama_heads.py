"""The heads that llama.cpp computes: EAGLE-3, MTP, DFlash and DSpark.

- EAGLE-3 (Li et al., arXiv 2503.01840): a layer in a file of its own, whose encoder combines the inputs of three of
  the target's layers into one state.
- MTP (DeepSeek-V3, arXiv 2412.19437, section 2.2): layers at the end of the target's own file that only draft, or in
  a file of their own. They take the target's last hidden state and the token after it, in a context of their own.
- DFlash (Chen et al., arXiv 2602.06036) and DSpark: a few layers in their own files, which draft a block in one pass.
  The target's states become cells of their cache directly, without tokens. A block is the newest token followed by mask
  tokens, all of which attend to one another.
"""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends import shown_states
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.trail import HeadStep, Trail
from runtime.backends.library import INT32_P
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
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
        self._fill(trail, trail.n_cells, None, states)
        if code := lib.llama_encode(self.handle, self._batch):
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
        self._fill(trail, last, self._block, None)
        self._flag(self._flags)
        self._run(trail)
        lib.llama_memory_seq_rm(self.memory, trail.sequence, -1 if last == trail.begin else last, -1)
        return self._logits()[self._n_blank :]

    def _add_cells(self, trail: Trail, tokens: Tokens, waiting: Rows) -> list[HeadStep]:
        """Turn the target's states into cells; return no steps, because a block is not continued."""
        n = len(waiting)
        self._make_room(trail, trail.n_cells, n)
        self._fill(trail, trail.n_cells, None, waiting)
        self._flag(self._unflagged)
        if self._has_parts:  # M-RoPE takes four sections of positions, one after another; the last is 0
            place = self._positions[trail.n_cells : trail.n_cells + n]
            self._parts = np.concatenate([place, place, place, np.zeros_like(place)])
            self._batch.pos = ctypes.cast(self._parts.ctypes.data, INT32_P)
        self._run(trail)
        return []
