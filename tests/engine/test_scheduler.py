"""What the next pass does: which sequences decode in it, which prompts it reads, whose turn it is."""

from __future__ import annotations

import math

import pytest

from runtime.engine import Sampling
from runtime.engine.order import MAX_READ, PIECE
from tests.support.planning import FREE, GREEDY, Setting

UNSEEDED = Sampling(temperature=0.0)


def test_those_that_wait_for_their_next_token_share_a_pass() -> None:
    setting = Setting()
    assert setting.plan() == ([], [], [])
    for number in (1, 2, 3):
        setting.speaking(number)
    assert setting.plan() == ([1, 2, 3], [0, 0, 0], [])


def test_only_as_many_as_fit_share_one() -> None:
    setting = Setting(n_cells=30)
    for number in (1, 2, 3):
        setting.speaking(number)
    assert setting.passed()[0] == [1, 2]
    assert setting.passed()[0][0] == 3


def test_those_whose_width_counts_share_as_many_rows_as_are_exact() -> None:
    setting = Setting(exact_rows=2)
    for number, sampling in ((1, GREEDY), (2, FREE), (3, FREE), (4, GREEDY)):
        setting.speaking(number, sampling=sampling)
    assert setting.passed()[0] == [1, 2]
    assert setting.passed()[0] == [3, 2]  # the other two can be predicted
    setting = Setting(exact_rows=1)
    for number in (1, 2):
        setting.speaking(number)
    assert [setting.passed()[0] for _ in range(2)] == [[1], [2]]


def test_where_width_counts_prompts_are_read_in_passes_of_their_own_in_fixed_pieces() -> None:
    setting = Setting(exact_rows=4)
    setting.speaking(1)
    setting.add(2, PIECE + 44, 40)
    setting.add(3, 600)
    assert [setting.passed() for _ in range(6)] == [
        ([], [], [(2, PIECE)]),
        ([1], [0], []),
        ([], [], [(2, PIECE + 43)]),
        ([1, 2], [0, 0], []),
        ([], [], [(3, PIECE)]),
        ([1, 2], [0, 0], []),
    ]


def test_who_has_been_read_says_its_first_token_before_others_are_read() -> None:
    """Whoever it is: all in one pass, or in as many as it takes."""
    for exact_rows, passes in ((4, [[2, 3, 4, 1]]), (2, [[2, 3], [4, 1]]), (1, [[2], [3], [4], [1]])):
        setting = Setting(exact_rows=exact_rows)
        setting.add(5, 1900)
        for number in (2, 3, 4):
            setting.add(number, 20, 20, n_said=1)
        setting.add(1, 40)
        assert setting.passed()[2] == [(1, 39)]
        assert [setting.passed()[0] for _ in passes] == passes
        assert setting.passed()[2] == [(5, PIECE)]


def test_where_passes_cannot_do_both_decoding_has_a_quarter_of_the_time_of_reading() -> None:
    for shares in (True, False):
        setting, seconds = Setting(exact_rows=4, shares=shares), [0.0, 0.0]
        setting.pass_seconds, setting.row_seconds = 0.02, 0.006
        setting.speaking(1)
        setting.speaking(2)
        setting.add(3, 1950)
        while any(each.is_reading for each in setting.scheduler.sequences):
            batch = setting.scheduler.plan()
            seconds[bool(batch.reading)] += setting.seconds(batch)
            setting.make(batch)
        assert seconds[0] / seconds[1] == pytest.approx(0.25, abs=0.02)


def test_where_width_counts_the_first_token_after_anothers_cache_has_a_pass_of_its_own() -> None:
    setting = Setting(exact_rows=4)
    setting.speaking(1)
    setting.add(2, 30, 29).n_read = 0
    assert [setting.passed() for _ in range(2)] == [([2], [0], []), ([1, 2], [0, 0], [])]


def test_what_the_cache_lost_is_read_again_as_it_was_made_where_width_counts() -> None:
    setting = Setting(exact_rows=4)
    setting.add(1, 10, 20, n_said=10)
    assert setting.plan() == ([1], [0], [])
    setting.target.held[1] = 0
    assert [setting.passed() for _ in range(5)] == [
        ([], [], [(1, 9)]),
        ([], [], [(1, 13)]),
        ([], [], [(1, 17)]),
        ([], [], [(1, 19)]),
        ([1], [0], []),
    ]


def test_where_all_round_alike_it_is_read_by_the_next_pass() -> None:
    setting = Setting()
    setting.add(1, 10, 20, n_said=10)
    setting.target.held[1] = 0
    assert setting.plan() == ([1], [0], [])


def test_prompts_that_come_together_are_read_together_the_shortest_first() -> None:
    setting = Setting()
    for number, n in ((1, MAX_READ), (2, 31), (3, 41)):
        setting.add(number, n)
    assert setting.passed() == ([2, 3], [30, 40], [(1, MAX_READ - 70)])
    assert setting.passed()[0] == [2, 3, 1]


def test_who_has_said_one_token_waits_for_those_who_came_with_it() -> None:
    setting = Setting()
    setting.add(1, 10, 11, n_said=1)
    setting.add(2, MAX_READ - 2)
    assert setting.plan() == ([1, 2], [0, MAX_READ - 3], [])
    setting.scheduler._prompts._row_seconds = 0.01
    assert setting.plan() == ([1], [0], [(2, 100)])  # for a second


def test_who_speaks_waits_for_no_more_of_a_prompt_than_it_can() -> None:
    setting = Setting()
    setting.speaking(1)
    setting.add(2, 1500)
    passes = [setting.passed() for _ in range(3)]
    assert all(decoding == [1] for decoding, _, _ in passes)
    assert [reading[0][1] for _, _, reading in passes] == [101, 202, 303]  # thrice what a plain pass takes


def test_now_and_then_a_pass_only_reads_so_that_it_is_known_what_each_takes() -> None:
    setting = Setting()
    setting.speaking(1)
    setting.add(2, 1500)
    joint = setting.decoder.controller.passes.joint
    joint._n_mixed = 10**6
    assert setting.passed()[0] == []
    joint.learn_read(384, 1.0)
    assert setting.passed()[0] == [1]


def test_a_prompt_for_which_there_is_no_room_beside_others_is_read_alone() -> None:
    setting = Setting(n_cells=20)
    setting.speaking(1)
    setting.add(2, 30)
    assert setting.plan() == ([2], [29], [])


def test_where_passes_cannot_be_shared_each_has_its_turn() -> None:
    setting = Setting(shares=False)
    for number in (1, 2):
        setting.speaking(number)
    assert setting.scheduler.turn_seconds == 1.0  # ten times what it takes to change
    order = [setting.passed()[0][0] for _ in range(300)]
    assert order == [1] * 100 + [2] * 100 + [1] * 100
    setting.decoder.drafting.switch_seconds = 0.0
    assert [setting.passed()[0][0] for _ in range(4)] == [2, 1, 2, 1]


def test_two_that_push_each_other_out_of_the_cache_both_come_to_an_end() -> None:
    """Whoever has come further than ever lets the other go on."""
    setting, order = Setting(exact_rows=4, shares=False), list[int]()
    setting.decoder.drafting.switch_seconds = 0.0
    sequences = [setting.add(number, 700) for number in (1, 2)]
    for _ in range(60):
        decoding, _, reading = setting.passed()
        (number,) = {*decoding, *(each for each, _ in reading)}
        order.append(number)
        setting.target.held[3 - number] = 0
    assert all(each.buffer.n_reply > 2 for each in sequences)


def test_where_one_can_be_held_it_is_made_to_its_end() -> None:
    setting = Setting(slots=1)
    first = setting.speaking(1)
    setting.speaking(2)
    assert setting.scheduler.holds_one
    assert setting.scheduler.turn_seconds == math.inf
    assert {setting.passed()[0][0] for _ in range(300)} == {1}
    setting.scheduler.remove(first)
    assert setting.plan()[0] == [2]


def test_short_ones_go_first_in_turns_for_a_while() -> None:
    setting = Setting(shares=False)
    setting.decoder.drafting.switch_seconds = 0.0
    setting.speaking(1)
    setting.add(2, 10, 11, n_said=2, is_short=True)
    order = [setting.passed()[0][0] for _ in range(150)]
    assert set(order[:100]) == {2}  # one second
    assert {1, 2} == set(order[104:])
    setting = Setting(shares=False)
    setting.speaking(1)
    assert setting.passed()[0] == [1]
    setting.add(2, 10, 11, n_said=2, is_short=True)
    assert setting.passed()[0] == [2]  # at once
