"""Chooses the kind of context for a model; those whose cache cannot be truncated at any token are here.

A recurrent state cannot. RecurrentBackend rewinds it in two ways, both exact: by the library's snapshots of the last
pass's rows, which undo a rejected draft, and at checkpoints where a conversation is likely to be resumed. Everything
else is read from scratch.

WindowedBackend's windowed layers cache no more than their window, which takes a fraction of the memory. Its cells are a
ring buffer. Once they have wrapped around, dropping tokens would put the next ones in other cells than plain decode
uses, and sums over them would round differently. So from then on tokens are only added, nothing is drafted, and a
different text is read from scratch.
"""

from __future__ import annotations

import llama_cpp.llama_cpp as lib

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shared import SharedBackend
from runtime.backends.stored.checkpoints import Checkpoints, longest, message_ends
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import Tokens
from runtime.core.image_runs import around
from runtime.models.cache_layout import CacheSpec

MAX_CHECKPOINTS = 8  # checkpoints kept
BORDERS = 4  # checkpoints taken while a text is read
MIN_SPACING = 32  # minimum tokens between two of them
TAIL = 8  # tokens at the end of a text without messages that may differ when it is read again


class RecurrentBackend(LlamaBackend):
    """One context of a recurrent or hybrid model: implements Backend.

    Drafts of `n_snapshots` tokens can be undone, where the library takes snapshots of this architecture (its
    `n_rs_seq`). A draft model's context (`n_rows` of 1) has none, because its passes are of one row: there the state is
    copied before tokens are drafted.
    """

    takes_trees = takes_padding = False

    def __init__(
        self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512, n_snapshots: int | None = None
    ) -> None:
        self.n_snapshots = n_rows - 1 if n_snapshots is None else n_snapshots
        super().__init__(model, n_ctx, n_rows, n_batch)
        self.n_snapshots = int(lib.llama_n_rs_seq(self.handle))
        self.n_rewindable = self.n_ctx if self.n_snapshots else 0
        self._is_drafting = n_rows == 1
        self.checkpoints = Checkpoints(self.handle, 2 if self._is_drafting else MAX_CHECKPOINTS, self._room)
        self._n_droppable = 0  # rows of the last pass that can be dropped

    def _room(self) -> int:
        """Return the bytes of memory for checkpoints, which are known only once the pair is loaded."""
        return self.saved.room()

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.n_rs_seq = self.n_snapshots
        return params

    def _n_kept(self, context: Tokens, exact: bool) -> int:
        start = super()._n_kept(context, exact)
        if self.seat.n_held - start <= self._n_droppable:
            return start
        return longest(self.checkpoints.all, start)

    def _drop(self, start: int) -> int:
        """Remove positions from `start` on, or from the checkpoint before it; return the number of positions left.

        The library reports success for any number of rows up to its snapshots, but it has only those of the last
        pass's rows, and only once. So the droppable rows are counted here.
        """
        start = self._whole(start)
        if self.seat.n_held - start > self._n_droppable:
            start = longest(self.checkpoints.all, start)
            if not start or not self.checkpoints.restore(start):
                self._clear()
                return 0
        self.checkpoints.cut(start)
        self._n_droppable = 0
        return super()._drop(start)

    def _clear(self, wipes: bool = True) -> None:
        super()._clear(wipes)
        self.checkpoints.cut(0)
        self._n_droppable = 0

    def _decode_chain(self, start: int, end: int, n_outputs: int, most: int | None = None) -> None:
        for border in self._borders(start, end - max(1, n_outputs)):
            super()._decode_chain(start, border, 0, most)
            self.checkpoints.take(border)
            start = border
        super()._decode_chain(start, end, n_outputs, most)
        if self._is_drafting and end - start > 1:
            self.checkpoints.take(end)

    def _borders(self, start: int, end: int) -> list[int]:
        """Return the positions in [start, end] where conversations are likely to be resumed.

        These are after the last token of each message, and shortly before the end unless a message ends near it.
        """
        found = [start + n for n in message_ends(self.seat.tokens[start:end], self.model.vocab.ends)]
        if not found or found[-1] < end - MIN_SPACING:
            found.append(end - TAIL)
        kept: list[int] = []
        for border in reversed([found[0], *found[1:][1 - BORDERS :]]):
            is_cut = around(self.seat.tokens[:end], border) != (border, border)
            if border >= start + MIN_SPACING and not is_cut and (not kept or border <= kept[0] - MIN_SPACING):
                kept.insert(0, border)
        return kept

    def _run(self, batch: lib.llama_batch, start: int, n_held: int) -> None:
        super()._run(batch, start, n_held)
        self._n_droppable = min(self.n_snapshots, batch.n_tokens - 1)

    def _save(self) -> None:
        self.saved.add(self._copy())

    def _copy(self, point: int = 0) -> SavedState | None:
        n_asked = self.seat.reuse.n_asked
        if 0 < self.seat.n_held - n_asked <= self._n_droppable:  # a copy is restored whole, so without draft tokens
            self._drop(n_asked)
        return self.saved.copy(self.seat.tokens[: self.seat.n_held], self.seat.reuse, checkpoints=self.checkpoints.all)

    def _restore(self, state: SavedState) -> None:
        super()._restore(state)
        if self.seat.n_held:
            self.checkpoints.all = state.checkpoints or ()


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
        return bool(self.seat.n_held <= self.n_rewindable)

    def _n_kept(self, context: Tokens, exact: bool) -> int:
        start = super()._n_kept(context, exact)
        return start if self._is_ordered or start == self.seat.n_held else 0

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
