"""Cells are given out so that every conversation finds its own in the order of its tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.backends.seat import Seat
from runtime.backends.seats import CellMap

N_CELLS, N_CTX, N_SEATS = 60, 40, 3
Move = tuple[int, str, int]  # seat, what it does, how much


class Conversations:
    """Seats, what they hold, and the cells that nobody may be given, because somebody has what lies behind them."""

    def __init__(self) -> None:
        self.map = CellMap(N_CELLS)
        self.seats = [Seat(number, N_CTX) for number in range(N_SEATS)]

    def move(self, number: int, kind: str, n: int) -> None:
        seat = self.seats[number]
        if kind == "grow" and seat.n_held + n <= N_CTX and self.map.n_left >= n:
            self.map.take(seat, seat.n_held, n)
            seat.n_held += n
        elif kind == "cut":
            start = max(0, seat.n_held - n)
            dead, free = self.map.leave(seat, start, seat.n_held)
            assert start <= dead <= free <= seat.n_held
            seat.n_held = start
        elif kind == "share" and not seat.n_held:
            source = self.seats[(number + 1) % N_SEATS]
            n = min(n, source.n_held)
            self.map.share(source, seat, n)
            seat.n_held = n

    def cells(self) -> list[list[int]]:
        return [seat.cells[: seat.n_held].tolist() for seat in self.seats]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, N_SEATS - 1), st.sampled_from(["grow", "cut", "share"]), st.integers(0, 9)),
        max_size=40,
    )
)
def test_cells_ascend_and_belong_to_those_who_hold_them(moves: list[Move]) -> None:
    conversations = Conversations()
    for move in moves:
        conversations.move(*move)
        held = conversations.cells()
        assert all(cells == sorted(set(cells)) for cells in held)
        assert conversations.map.n_used == len({cell for cells in held for cell in cells})
        assert all(cell < conversations.map.top for cells in held for cell in cells)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, N_SEATS - 1), st.sampled_from(["grow", "cut"]), st.integers(1, 9))))
def test_without_sharing_no_cell_has_two_owners(moves: list[Move]) -> None:
    conversations = Conversations()
    for move in moves:
        conversations.move(*move)
        held = [cell for cells in conversations.cells() for cell in cells]
        assert len(held) == len(set(held))


def test_only_what_lies_behind_all_others_is_given_out_again() -> None:
    cells, first, second = CellMap(20), Seat(0, 10), Seat(1, 10)
    cells.take(first, 0, 4)
    cells.take(second, 0, 3)
    assert cells.leave(first, 2, 4) == (2, 4)  # two that nobody has, before the second one's
    assert (cells.top, cells.n_used, cells.n_left) == (7, 5, 13)
    assert cells.leave(second, 1, 3) == (1, 1)
    assert cells.top == 5


def test_what_another_one_has_stays_its_own() -> None:
    cells, first, second = CellMap(20), Seat(0, 10), Seat(1, 10)
    cells.take(first, 0, 5)
    cells.share(first, second, 3)
    cells.take(second, 3, 2)
    assert cells.leave(first, 0, 5) == (3, 5)  # three are the second one's, and two lie before its last ones
    np.testing.assert_array_equal(second.cells[:5], [0, 1, 2, 5, 6])
    cells.clear()
    assert (cells.top, cells.n_used) == (0, 0)
