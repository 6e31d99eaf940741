"""EAGLE-3 (Li et al., arXiv 2503.01840): a head of one layer in a file of its own.

Its encoder combines the inputs of three of the target's layers into one state.
"""

from __future__ import annotations

import llama_cpp.llama_cpp as lib

from runtime.backends import staging
from runtime.backends.heads.head import HeadBackend
from runtime.backends.heads.trail import Trail
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.staging import Rows


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
        return staging.hidden_rows(self.handle, len(states), self.width).copy()
