"""The seats of a context that several conversations share: their cells, and batches of rows of several.

Cells are allocated in ascending order, so every conversation finds its own in the order of its tokens, even with cells
of others in between: sums over them round as they do for a single conversation. A cell is reused only where nothing
lies behind it; cells released in the middle are lost until the map is cleared. Knows tokens and numbers; shared.py
changes the cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp.llama_cpp as lib
import numpy as np
from numpy.typing import NDArray

from runtime.backends.library import INT8_P, INT32_P
from runtime.backends.seat import Seat
from runtime.backends.stored.saved_states import NEGLIGIBLE
from runtime.core.draft import Adapters, PassInput, Tokens, common_prefix
from runtime.core.image_runs import around, position

# Cell searches between two checks for idle cells. A conversation that decoded nothing in that time is no longer being
# generated
IDLE_SEARCHES = 32


class Seats:
    """All seats of a context, least recently used first; rows are decoded in the last one, the current seat."""

    def __init__(self, seats: list[Seat]) -> None:
        self.all = seats
        self.busy: list[Seat] = []  # seats with rows in the pass that is being prepared
        self.n_looked = 0  # number of cell searches
        self.adapters: Adapters = ()  # with which tokens are decoded now; seats with others share nothing

    @property
    def current(self) -> Seat:
        """Seat in which rows are decoded."""
        return self.all[-1]

    def sit(self, seat: Seat) -> None:
        """Make a seat the current one."""
        self.all.remove(seat)
        self.all.append(seat)

    @property
    def others(self) -> list[Seat]:
        """All seats but the current one."""
        return self.all[:-1]

    @property
    def n_others(self) -> int:
        """Number of conversations in seats other than the current one."""
        return sum(seat.n_held > 0 for seat in self.others)

    @property
    def free(self) -> list[Seat]:
        """Seats without rows in the pass that is being prepared."""
        return [seat for seat in self.all if seat not in self.busy]

    @property
    def recent(self) -> list[Seat]:
        """Seats whose conversations are being generated."""
        return [seat for seat in self.all if seat is self.current or seat.used_at > self.n_looked - IDLE_SEARCHES]

    def shares(self, context: Tokens, grain: int) -> dict[Seat, int]:
        """Return for each seat the number of leading tokens of `context[:-1]` that it has cached and may share."""
        return {seat: self._shared(seat, context, grain) for seat in self.all}

    def _shared(self, seat: Seat, context: Tokens, grain: int) -> int:
        is_alike = seat.reuse.adapters == self.adapters
        return seat.reuse.shared(seat.tokens[: seat.n_held], context, grain) if is_alike else 0

    def continued(self, context: Tokens, grain: int) -> Seat | None:
        """Return the free seat whose conversation `context` extends by a few tokens, the usual case; None without one.

        Of several such seats, return the one that lacks the fewest tokens.
        """
        n, found, most = len(context), None, max(0, len(context) - NEGLIGIBLE - 1)
        for seat in self.free:
            asked = seat.reuse.n_asked
            if seat.reuse.adapters != self.adapters:
                continue
            if not most < asked < n or asked > seat.n_held or (grain > 1 and seat.reuse.n_exact < asked - 1):
                continue
            is_alike = seat.tokens[asked - 1] == context[asked - 1]
            if is_alike and common_prefix(seat.tokens[:asked], context) == asked:
                found, most = seat, asked
                if asked == n - 1:
                    break
        return found


class CellMap:
    """The number of conversations that own each of `n_cells` cells; those from `top` on are free."""

    def __init__(self, n_cells: int) -> None:
        self.n_cells, self.top = n_cells, 0
        self._owners: NDArray[np.int16] = np.zeros(n_cells, dtype=np.int16)

    @property
    def n_left(self) -> int:
        """Number of cells that can be allocated."""
        return self.n_cells - self.top

    @property
    def n_used(self) -> int:
        """Number of cells that some conversation owns."""
        return int(np.count_nonzero(self._owners[: self.top]))

    def take(self, seat: Seat, start: int, n: int) -> None:
        """Allocate the next `n` cells to a conversation, from position `start` on."""
        end = self.top + n
        seat.cells[start : start + n] = np.arange(self.top, end, dtype=np.int32)
        self._owners[self.top : end] = 1
        self.top = end

    def share(self, source: Seat, seat: Seat, n: int) -> None:
        """Let a conversation share the cells of another one's first `n` tokens."""
        seat.cells[:n] = source.cells[:n]
        self._owners[source.cells[:n]] += 1

    def leave(self, seat: Seat, start: int, end: int) -> tuple[int, int]:
        """Release a conversation's cells at positions [start, end).

        Return the first position whose cells no conversation owns, and the first whose cells can be reused.
        """
        self._owners[seat.cells[start:end]] -= 1
        free = end
        while free > start and seat.cells[free - 1] == self.top - 1 and not self._owners[self.top - 1]:
            free, self.top = free - 1, self.top - 1
        _, whole = around(seat.tokens[:end], free)  # of an image whose cells are apart none is reused
        free, self.top = whole, self.top + whole - free
        # Only the beginning can be shared with others
        return start + int(np.count_nonzero(self._owners[seat.cells[start:free]])), free

    def clear(self) -> None:
        """Release all cells."""
        self.top = 0
        self._owners[:] = 0


class JointBatch:
    """Up to `n` rows of `n_seats` conversations."""

    def __init__(self, n: int, n_seats: int, is_spatial: bool = False) -> None:
        self._is_spatial = is_spatial  # whether images may take fewer positions than tokens
        self._numbers = (ctypes.c_int32 * n_seats)(*range(n_seats))
        self._tokens: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._positions: NDArray[np.int32] = np.empty(n, dtype=np.int32)
        self._flags: NDArray[np.int8] = np.empty(n, dtype=np.int8)
        self._seats: NDArray[np.uintp] = np.empty(n, dtype=np.uintp)  # address of each row's sequence id
        self._counts: NDArray[np.int32] = np.ones(n, dtype=np.int32)
        self._batch = lib.llama_batch()
        self._batch.embd = None
        self._batch.token = ctypes.cast(self._tokens.ctypes.data, INT32_P)
        self._batch.pos = ctypes.cast(self._positions.ctypes.data, INT32_P)
        self._batch.n_seq_id = ctypes.cast(self._counts.ctypes.data, INT32_P)
        self._batch.seq_id = ctypes.cast(self._seats.ctypes.data, ctypes.POINTER(INT32_P))
        self._batch.logits = ctypes.cast(self._flags.ctypes.data, INT8_P)

    def fill(self, seats: Sequence[Seat], asked: Sequence[PassInput]) -> lib.llama_batch:
        """Return a batch of each seat's missing tokens and draft, with logits for the last token and the draft."""
        at, numbers = 0, ctypes.addressof(self._numbers)
        for seat, (context, draft, *_) in zip(seats, asked, strict=True):
            start, n, end = seat.n_held, len(context), len(context) + len(draft.tokens)
            seat.tokens[start:n], seat.tokens[n:end] = context[start:], draft.tokens
            rows = slice(at, at := at + end - start)
            first = position(seat.tokens, start) if self._is_spatial else start
            self._tokens[rows], self._positions[rows] = seat.tokens[start:end], np.arange(first, first + end - start)
            self._seats[rows] = numbers + 4 * seat.sequence
            self._flags[rows] = 0
            self._flags[at - 1 - len(draft.tokens) : at] = 1
        self._batch.n_tokens = at
        return self._batch
