"""Passes are timed by a scripted clock: how often, until when, and which number of threads is fastest."""

from __future__ import annotations

import pytest

from bench.instruments.toy import Clock
from runtime.loading.calibration import FAR_BUDGET, Calibration, far_budget
from runtime.loading.pass_timing import fastest_threads, measure
from runtime.speculative.control.costs import PassCosts


def test_a_plain_pass_that_is_held_up_is_not_what_plain_passes_cost(clock: Clock) -> None:
    """Even where the time is up after it."""
    costs, seen = PassCosts(), list[int]()

    def run(width: int) -> float:
        seen.append(width)
        return clock.advance(0.05 if len(seen) == 2 else 0.001)

    measure(costs, run, 8, deadline=0.0)
    assert costs.seconds(1, 0) == pytest.approx(0.001)


def test_measuring_stops_at_the_deadline_but_not_before_those_that_guesses_need(clock: Clock) -> None:
    costs, seen = PassCosts(), list[int]()

    def run(width: int) -> float:
        seen.append(width)
        return clock.advance(0.1 * width)

    measure(costs, run, 8, deadline=0.0)
    assert set(seen) == {1, 2, 4}
    measure(costs, run, 32, deadline=0.0)
    assert set(seen) == {1, 2, 4, 16}
    costs = PassCosts()
    measure(costs, run, 8, deadline=float("inf"))
    assert costs.widths(0) == pytest.approx({width: 0.1 * width for width in range(1, 9)})


def test_what_a_plain_pass_takes_longer_after_a_wide_one_is_measured_with_them(clock: Clock) -> None:
    costs, before = PassCosts(), [1]

    def run(width: int) -> float:
        taken = 0.1 * width + (0.03 if width == 1 < before[0] else 0.0)
        before[0] = width
        return clock.advance(taken)

    measure(costs, run, 4, deadline=float("inf"))
    assert costs.seconds(1, 0) == pytest.approx(0.1)
    assert costs.after == pytest.approx(0.03)


def test_where_passes_are_padded_a_plain_one_takes_no_longer_after_a_draft() -> None:
    measured = Calibration(1, 1, {1: 0.1, 2: 0.11, 4: 0.12}, after=0.03)
    assert measured.padded(0) == measured
    assert measured.padded(4) == Calibration(1, 1, {1: 0.12, 2: 0.12, 4: 0.12}, after=0.0)


def test_what_a_first_pass_takes_once_is_not_what_it_costs(clock: Clock) -> None:
    """Even where there is time for one more of each width."""
    costs, seen = PassCosts(), set[int]()

    def run(width: int) -> float:
        taken = 0.01 if width in seen else 0.2
        seen.add(width)
        return clock.advance(taken)

    measure(costs, run, 4, deadline=0.75, warms=True)
    assert costs.widths(0) == pytest.approx({1: 0.01, 2: 0.01, 4: 0.01, 3: 0.01})


def test_the_fastest_number_of_threads_wins(clock: Clock) -> None:
    tried: list[int] = []

    def work(rows: int) -> float:
        return clock.advance({1: 0.6, 2: 0.05, 4: 0.6}[tried[-1]])

    assert fastest_threads([1, 2, 4], tried.append, work, 1, float("inf")) == 2
    assert tried == [4, 2, 1]


def test_a_model_too_slow_for_a_comparison_keeps_all_threads(clock: Clock) -> None:
    tried: list[int] = []
    assert fastest_threads([1, 2, 4], tried.append, clock.advance, 1, deadline=-2.0) == 4
    assert tried == [4]


def test_one_number_of_threads_is_taken_without_a_pass(clock: Clock) -> None:
    tried: list[int] = []
    assert fastest_threads([2], tried.append, clock.advance, 1, float("inf")) == 2
    assert (tried, clock.now) == ([2], 0.0)


def test_passes_to_distant_workers_have_time_for_wide_ones(clock: Clock) -> None:
    """A pass of a quarter of a second, of which the first takes four times that."""
    taken = iter([1.0, 0.25])
    assert far_budget(lambda rows: clock.advance(next(taken))) == pytest.approx(12.5)
    assert far_budget(lambda rows: clock.advance(0.001)) == FAR_BUDGET
