"""The places of several conversations in a context. Knows numbers and tokens; the cache is shared.py's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.backends.saved_states import NEGLIGIBLE
from runtime.core.draft import Tokens, common_prefix, usable

# Times that cells are looked for, between two looks at whether many lie idle; a conversation that had none meanwhile is
# not being made any more
LOOK = 32


class Seat:
    """A conversation's place in a context: its sequence, the tokens that the context holds, and the cell of each."""

    def __init__(self, sequence: int, n_ctx: int) -> None:
        self.sequence = sequence
        self.tokens: Tokens = np.zeros(n_ctx, dtype=np.int32)
        self.cells: NDArray[np.int32] = np.zeros(n_ctx, dtype=np.int32)
        self.n_held = 0
        self.used_at = 0  # when something was decoded here, in times that cells were looked for
        self.n_whole = 0  # tokens that came back together, before the last of which it cannot be cut
        self.n_asked = 0  # of them that were asked for; those behind are drafts that may have been rejected


class Seats:
    """All seats of a context, in the order in which they were used: the last one is where rows are decoded now."""

    def __init__(self, n: int, n_ctx: int) -> None:
        self.all = [Seat(number, n_ctx) for number in range(n)]
        self.busy: list[Seat] = []  # those that have rows of the pass that is being prepared
        self.n_looked = 0  # times that cells were looked for

    @property
    def current(self) -> Seat:
        """Where rows are decoded now."""
        return self.all[-1]

    def sit(self, seat: Seat) -> None:
        """Rows are decoded there from now on."""
        self.all.remove(seat)
        self.all.append(seat)

    @property
    def others(self) -> list[Seat]:
        """All but the current one."""
        return self.all[:-1]

    @property
    def n_others(self) -> int:
        """Conversations in other seats than the current one."""
        return sum(seat.n_held > 0 for seat in self.others)

    @property
    def free(self) -> list[Seat]:
        """Those without rows in the pass that is being prepared."""
        return [seat for seat in self.all if seat not in self.busy]

    @property
    def recent(self) -> list[Seat]:
        """Those whose conversations are being made."""
        return [seat for seat in self.all if seat is self.current or seat.used_at > self.n_looked - LOOK]

    def shares(self, context: Tokens, grain: int) -> dict[Seat, int]:
        """How many of the first tokens of `context[:-1]` each seat holds and may lend."""
        asked = context[:-1]
        shares = {seat: common_prefix(seat.tokens[: seat.n_held], asked) for seat in self.all}
        cut = {seat: usable(n, seat.n_asked, grain) for seat, n in shares.items()}
        return {seat: n if n >= seat.n_whole else 0 for seat, n in cut.items()}

    def continued(self, context: Tokens) -> Seat | None:
        """The free seat whose conversation goes on with a few tokens, which is the usual case; of several that are
        alike so far the one that lacks fewest.
        """
        n, found = len(context), None
        for seat in self.free:
            asked = seat.n_asked
            is_near = max(1, n - NEGLIGIBLE) <= asked < n and asked <= seat.n_held
            is_alike = is_near and seat.tokens[asked - 1] == context[asked - 1]
            is_better = is_alike and (found is None or asked > found.n_asked)
            if is_better and common_prefix(seat.tokens[:asked], context) == asked:
                found = seat
        return found
