"""How far a pass reads the prompt of a sequence that runs alone."""

from __future__ import annotations

import sys

import pytest

from runtime.engine import Sampling
from runtime.engine.order import FEW, MAX_READ
from tests.support.planning import FREE, GREEDY, Setting

UNSEEDED = Sampling(temperature=0.0)


def test_a_prompt_alone_is_read_in_pieces_and_the_last_one_says_a_token() -> None:
    setting = Setting()
    setting.add(1, 2 * MAX_READ + 88, 10)
    assert [setting.passed() for _ in range(4)] == [
        ([], [], [(1, MAX_READ)]),
        ([], [], [(1, 2 * MAX_READ)]),
        ([1], [87], []),
        ([1], [0], []),
    ]


@pytest.mark.parametrize(
    ("exact_rows", "row_seconds", "sampling", "ends"),
    [
        (sys.maxsize, 0.005, GREEDY, [384, 768, 1152]),
        (sys.maxsize, 0.5, GREEDY, [384, 448, 512]),  # whole tiles of kernels
        (4, 0.005, UNSEEDED, [128, 256, 384]),  # the same whenever it is read
        (4, 0.5, UNSEEDED, [128, 256, 384]),
        (4, 0.005, FREE, [384, 768, 1152]),
        (4, 0.5, FREE, [384, 448, 512]),
    ],
)
def test_pieces_take_a_second_where_it_does_not_matter_how_a_prompt_is_divided(
    exact_rows: int, row_seconds: float, sampling: Sampling, ends: list[int]
) -> None:
    setting = Setting(exact_rows=exact_rows)
    setting.row_seconds = row_seconds  # which is not known before
    setting.add(1, 1300, 10, sampling)
    assert [setting.passed()[2] for _ in range(3)] == [[(1, end)] for end in ends]


@pytest.mark.parametrize(
    ("n_cached", "row_seconds", "n", "ends"),
    [
        (0, 0.005, 600, [256, 512, 599]),
        (0, 0.5, 600, [256, 384, 512, 599]),  # the speed is not known before
        (0, 0.005, 514, [256, 512, 513]),
        (0, 0.005, 200, [128, 199]),
        (80, 0.005, 600, [128, 384, 512, 599]),
    ],
)
def test_fixed_pieces_are_longer_where_such_round_alike_but_for_the_rest(
    n_cached: int, row_seconds: float, n: int, ends: list[int]
) -> None:
    setting = Setting(exact_rows=4, pieces=True)
    setting.row_seconds = row_seconds
    setting.add(1, n, n_cached, UNSEEDED)
    assert [setting.passed()[2] for _ in ends] == [[(1, end)] for end in ends]


@pytest.mark.parametrize(("n", "is_whole"), [(MAX_READ + FEW, True), (MAX_READ + FEW + 2, False)])
def test_the_last_few_tokens_are_read_with_the_piece_before_them(n: int, is_whole: bool) -> None:
    setting = Setting()
    setting.add(1, n, 10)
    assert setting.passed() == (([1], [n - 11], []) if is_whole else ([], [], [(1, MAX_READ)]))


def test_a_prompt_that_is_only_read_says_nothing() -> None:
    setting = Setting()
    setting.add(1, 30, max_tokens=0)
    assert setting.plan() == ([], [], [(1, 29)])
