"""Seats: the slots of several conversations in one context. Knows numbers and tokens; shared.py changes the cache."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.backends.held import Reuse
from runtime.backends.stored.saved_states import NEGLIGIBLE
from runtime.core.draft import Tokens, common_prefix

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


class Seats:
    """All seats of a context, least recently used first; rows are decoded in the last one, the current seat."""

    def __init__(self, n: int, n_ctx: int) -> None:
        self.all = [Seat(number, n_ctx) for number in range(n)]
        self.busy: list[Seat] = []  # seats with rows in the pass that is being prepared
        self.n_looked = 0  # number of cell searches

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
        return {seat: seat.reuse.shared(seat.tokens[: seat.n_held], context, grain) for seat in self.all}

    def continued(self, context: Tokens, grain: int) -> Seat | None:
        """Return the free seat whose conversation `context` extends by a few tokens, the usual case; None without one.

        Of several such seats, return the one that lacks the fewest tokens.
        """
        n, found, most = len(context), None, max(0, len(context) - NEGLIGIBLE - 1)
        for seat in self.free:
            asked = seat.reuse.n_asked
            if not most < asked < n or asked > seat.n_held or (grain > 1 and seat.reuse.n_exact < asked - 1):
                continue
            is_alike = seat.tokens[asked - 1] == context[asked - 1]
            if is_alike and common_prefix(seat.tokens[:asked], context) == asked:
                found, most = seat, asked
                if asked == n - 1:
                    break
        return found
