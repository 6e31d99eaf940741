"""Allocation of a context's cells to several conversations. Numbers only: shared.py changes the cache.

Cells are allocated in ascending order, so every conversation finds its own in the order of its tokens, even with cells
of others in between: sums over them round as they do for a single conversation. A cell is reused only where nothing
lies behind it; cells released in the middle are lost until the map is cleared.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.backends.seats import Seat


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
        # Only the beginning can be shared with others
        return start + int(np.count_nonzero(self._owners[seat.cells[start:free]])), free

    def clear(self) -> None:
        """Release all cells."""
        self.top = 0
        self._owners[:] = 0
