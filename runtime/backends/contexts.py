"""Chooses the kind of context for a model, of which the one with small caches for sliding windows is here.

WindowedBackend's windowed layers cache no more than their window, which takes a fraction of the memory. Its cells are a
ring buffer. Once they have wrapped around, dropping tokens would put the next ones in other cells than plain decode
uses, and sums over them would round differently. So from then on tokens are only added, nothing is drafted, and a
different text is read from scratch.
"""

from __future__ import annotations

import llama_cpp.llama_cpp as lib

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.recurrent import RecurrentBackend
from runtime.backends.shared import SharedBackend
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import Tokens
from runtime.models.cache_layout import CacheSpec


class WindowedBackend(LlamaBackend):
    """One context of a model with sliding windows: implements Backend."""

    takes_trees = takes_padding = False

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512) -> None:
        super().__init__(model, n_ctx, n_rows, n_batch)
        # The library does not report its number of cells, so this is the memory estimate's
        cells = CacheSpec(self.n_ctx, model.cache_types, n_batch=self.n_batch).cells(model.window)
        self.n_rewindable = min(self.n_ctx, cells)

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.swa_full = False
        return params

    @property
    def _is_ordered(self) -> bool:
        """Whether every token is still in the cell of its position."""
        return bool(self._n_held <= self.n_rewindable)

    def _n_kept(self, context: Tokens, exact: bool) -> int:
        start = super()._n_kept(context, exact)
        return start if self._is_ordered or start == self._n_held else 0

    def _drop(self, start: int) -> int:
        if self._is_ordered:
            return super()._drop(start)
        self._clear()
        return 0

    def _save(self) -> None:
        if self._is_ordered:
            super()._save()

    def _copy(self, point: int = 0) -> SavedState | None:
        return super()._copy(point) if self._is_ordered else None


def open_backend(
    model: LlamaModel,
    n_ctx: int,
    n_rows: int,
    n_batch: int,
    can_branch: bool = False,
    is_frugal: bool = False,
    n_seats: int = 1,
) -> LlamaBackend:
    """Open the context that the model's architecture needs; a frugal one keeps little to rewind with.

    Several seats are for conversations that share passes, where the architecture allows it and no trees are used. Trees
    need a cache that can be truncated anywhere; elsewhere `can_branch` has no effect. Raises ModelError.
    """
    if model.is_recurrent:
        return RecurrentBackend(model, n_ctx, n_rows, n_batch, 0 if is_frugal else n_rows - 1)
    if is_frugal and model.window:
        return WindowedBackend(model, n_ctx, n_rows, n_batch)
    if n_seats > 1 and not can_branch:
        return SharedBackend(model, n_ctx, n_rows, n_batch, n_seats)
    return LlamaBackend(model, n_ctx, n_rows, n_batch, can_branch)
