"""Which cells of a context several conversations have. Numbers only: what is done to the cache is shared.py's.

Cells are given out in ascending order, so every conversation finds its own in the order of its tokens, whoever else has
cells between them: sums over them round as they do for a conversation by itself. A cell is given out again only where
nothing lies behind it; what is dropped from the middle is lost until the map begins anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.backends.seats import Seat


class CellMap:
    """How many conversations have each of `n_cells`; those from `top` on have never been given out."""

    def __init__(self, n_cells: int) -> None:
        self.n_cells, self.top = n_cells, 0
        self._owners: NDArray[np.int16] = np.zeros(n_cells, dtype=np.int16)

    @property
    def n_left(self) -> int:
        """Cells that can be given out."""
        return self.n_cells - self.top

    @property
    def n_used(self) -> int:
        """Cells that some conversation has."""
        return int(np.count_nonzero(self._owners[: self.top]))

    def take(self, seat: Seat, start: int, n: int) -> None:
        """Gives the next `n` cells to a conversation, from position `start` on."""
        end = self.top + n
        seat.cells[start : start + n] = np.arange(self.top, end, dtype=np.int32)
        self._owners[self.top : end] = 1
        self.top = end

    def share(self, source: Seat, seat: Seat, n: int) -> None:
        """A conversation has the cells of another one's first `n` tokens too."""
        seat.cells[:n] = source.cells[:n]
        self._owners[source.cells[:n]] += 1

    def leave(self, seat: Seat, start: int, end: int) -> tuple[int, int]:
        """A conversation gives up positions [start, end).

        Returns from which on nobody has their cells, and from which on those can be given out again.
        """
        self._owners[seat.cells[start:end]] -= 1
        free = end
        while free > start and seat.cells[free - 1] == self.top - 1 and not self._owners[self.top - 1]:
            free, self.top = free - 1, self.top - 1
        # Others can only have the beginning
        return start + int(np.count_nonzero(self._owners[seat.cells[start:free]])), free

    def clear(self) -> None:
        """Nobody has any."""
        self.top = 0
        self._owners[:] = 0
