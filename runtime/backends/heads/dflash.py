"""DFlash (Chen et al., arXiv 2602.06036) and DSpark: heads of a few layers in their own files, which draft a block in
one pass.

The target's states become cells of its cache directly, without tokens. A block is the newest token followed by mask
tokens, all of which attend to one another.
"""

from __future__ import annotations

import ctypes

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.trail import HeadStep, Trail
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.pointers import INT32_P
from runtime.backends.staging import Rows
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens
from runtime.models.heads import HEAD_ROWS, BlockShape


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
