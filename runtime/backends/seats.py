"""The seats of a context, in each of which is one conversation: their tokens, and their cells where several share it.

Cells are allocated in ascending order, so every conversation finds its own in the order of its tokens, even with cells
of others in between: sums over them round as they do for a single conversation. A cell is reused only where nothing
lies behind it; cells released in the middle are lost until the map is cleared. Knows tokens and numbers; shared.py
changes the cache.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.backends.stored.saved_states import NEGLIGIBLE, Reuse, SavedState
from runtime.core.draft import Adapters, Tokens, common_prefix
from runtime.core.image_runs import around

# Cell searches between two checks for idle cells. A conversation that decoded nothing in that time is no longer being
# generated
IDLE_SEARCHES = 32


class Seat:
    """A conversation's slot in a context: its sequence id, its cached tokens, and the cell of each token."""

    def __init__(self, sequence: int, n_ctx: int) -> None:
        self.sequence = sequence
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.address: int = self.tokens.ctypes.data
        self.cells: NDArray[np.int32] = np.zeros(n_ctx, dtype=np.int32)
        self.n_held = 0
        self.used_at = 0  # value of `Seats.n_looked` when tokens were last decoded here
        self.reuse = Reuse()

    @property
    def asked(self) -> Tokens:
        """Its cached tokens without draft tokens."""
        return self.tokens[: min(self.n_held, self.reuse.n_asked)]

    def cut(self, n: int) -> None:
        """Note that the conversation was truncated to `n` tokens."""
        self.n_held = n
        self.reuse.cut(n)

    def fill(self, state: SavedState, is_whole: bool) -> None:
        """Note that a saved conversation was copied here; with `is_whole` it cannot be truncated."""
        self.n_held = n = len(state.tokens)
        self.reuse.set(state.n_asked, state.n_exact, n if is_whole else 0)
        self.reuse.adapters = state.adapters
        self.tokens[:n] = state.tokens

    def clear(self) -> None:
        """Note that it is empty."""
        self.n_held = 0
        self.reuse.set(0, 0)


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
