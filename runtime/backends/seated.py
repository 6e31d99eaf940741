"""Conversations in the seats of a context: assignment to seats, eviction, and copies.

Knows seats, cells and states; shared.py runs the passes.
"""

from __future__ import annotations

from functools import partial

import llama_cpp.llama_cpp as lib

from runtime.backends.held import HeldConversations
from runtime.backends.seat import Seat
from runtime.backends.seats import CellMap, Seats
from runtime.backends.stored.saved_states import HeldConversation, SavedState


class SeatedConversations(HeldConversations):
    """Several conversations in one context."""

    _map: CellMap
    _seats: Seats

    def _find_cells(self, n: int) -> None:
        """Make `n` cells available."""
        raise NotImplementedError

    @property
    def n_held(self) -> int:
        """Number of cached conversations, those in seats and the saved ones."""
        return max(1, sum(seat.n_held > 0 for seat in self._seats.all)) + len(self.saved)

    def set_slots(self, n: int) -> None:
        """Keep up to `n` conversations from now on; with an `n` of 1, the one used last."""
        super().set_slots(n)
        current = self.seat
        for seat in self._seats.others if n == 1 else []:
            self._vacate(seat)
        self._sit(current)

    def _sit(self, seat: Seat) -> None:
        """Make a seat the current one: tokens decoded from now on belong to its conversation."""
        self._seats.sit(seat)
        self.seat = seat

    def _vacate(self, seat: Seat) -> None:
        """Save a seat's conversation and empty the seat."""
        self._sit(seat)
        if seat.n_held:
            self._drop(len(seat.asked))
            self._save()
            self._drop(0)

    def _vacant(self, source: Seat | None) -> Seat:
        """Return an empty seat; without one, vacate the least recently used seat.

        If possible that is not `source`, whose cells are about to be shared.
        """
        empty = [seat for seat in self._seats.free if not seat.n_held]
        if empty and self.slots > 1:
            return empty[-1]
        leaving = next((seat for seat in self._seats.free if seat is not source), None)
        if leaving is not None:
            self._vacate(leaving)
            return leaving
        assert source is not None  # the only seat that is free
        self._sit(source)
        self._save()
        return source

    def _save(self) -> None:
        """Save a copy of the current seat's conversation, which is about to be evicted."""
        if self.saved.most:
            super()._save()

    @property
    def _most_saved(self) -> int:
        return max(0, self.slots - self._seats.n_others)

    def _copy_of(self, seat: Seat) -> SavedState | None:
        """Return a copy of a conversation that is about to be moved to the front of the context."""
        if self.model.window and seat is not self.seat and seat not in self._seats.busy:
            n = len(seat.asked)  # otherwise the copy has too few cells to undo a rejected draft
            lib.llama_memory_seq_rm(self.memory, seat.sequence, self._position(n, seat.tokens), -1)
            seat.n_held = n
        return self.saved.copy(seat.tokens[: seat.n_held], seat.reuse, seat.sequence, () if self.model.window else None)

    def conversations(self) -> list[HeldConversation]:
        """Return the conversations in seats, followed by the saved ones."""
        held = [seat for seat in reversed(self._seats.all) if seat.n_held]
        return [*map(self._at_rest, held), *self.saved.conversations()]

    def _at_rest(self, seat: Seat) -> HeldConversation:
        copy, erase = partial(self._copy_at_rest, seat), partial(self._erase_at_rest, seat)
        return HeldConversation(seat.asked.copy(), copy, erase, seat.reuse.adapters)

    def _erase_at_rest(self, seat: Seat) -> None:
        current = self.seat
        self._sit(seat)
        self._drop(0)
        self._sit(current)

    def _copy_at_rest(self, seat: Seat, point: int) -> SavedState | None:
        """Return a copy of a conversation while no pass is prepared; the order of the seats does not change."""
        order = [*self._seats.all]
        self._sit(seat)
        try:
            return self._copy(point)
        finally:
            self._sit(order[-1])
            self._seats.all[:] = order

    def _share(self, source: Seat, n: int) -> None:
        """Start the current seat's conversation with the first `n` tokens of another one, whose cells they share."""
        if n:
            end = self._position(n, source.tokens)
            lib.llama_memory_seq_cp(self.memory, source.sequence, self.seat.sequence, 0, end)
            self._map.share(source, self.seat, n)
            self.seat.reuse.set(n, min(source.reuse.n_exact, n), min(source.reuse.n_whole, n))
            self.seat.reuse.adapters = source.reuse.adapters
            self.seat.tokens[:n] = source.tokens[:n]
            self.seat.n_held = n

    def _restore(self, state: SavedState) -> None:
        """Replace the current seat's conversation by a saved one."""
        self._drop(0)
        self._find_cells(len(state.tokens))
        self._put(self.seat, state)

    def _put(self, seat: Seat, state: SavedState | None) -> None:
        """Copy a saved conversation into the next free cells, where llama.cpp can."""
        if state is not None and self.saved.restore(state, seat.sequence):
            state.fill(seat, bool(self.model.window))
            self._map.take(seat, 0, seat.n_held)

    def _compact(self) -> None:
        """Compact the cache: move all conversations to the front of the context."""
        held = [seat for seat in self._seats.all if seat.n_held]
        states = [self._copy_of(seat) for seat in held]
        asked = [seat.reuse.n_asked for seat in held]
        self._clear(wipes=False)
        for seat, state, n_asked in zip(held, states, asked, strict=True):
            self._put(seat, state)
            seat.reuse.n_asked = min(n_asked, seat.n_held)
