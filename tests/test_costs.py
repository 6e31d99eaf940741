"""What passes cost, learned from scripted times and asked before it is known."""

from __future__ import annotations

import pytest

from runtime.speculative.control.costs import PassCosts, interpolate
from tests.support.control import costs_of


def test_interpolation_is_exact_at_points_and_linear_between_and_beyond() -> None:
    points = [(1, 1.0), (2, 1.5), (4, 2.0)]
    assert [interpolate(points, w) for w in (1, 2, 3, 4, 6)] == [1.0, 1.5, 1.75, 2.0, 2.5]


def test_costs_follow_a_drift_and_ignore_a_spike() -> None:
    costs = costs_of(1.0, 1.5)
    costs.observe(1, 0, 100.0)
    assert costs.seconds(1, 0) <= 1.11
    for _ in range(40):
        costs.observe(1, 0, 2.0)
    assert costs.seconds(1, 0) == pytest.approx(2.0, rel=0.05)
    assert costs.seconds(2, 0) > 1.65  # the other widths drift along


def test_an_unmeasured_context_length_lies_between_those_that_were_measured() -> None:
    costs = costs_of(1.0, 1.5)
    assert costs.seconds(2, 50_000) == 1.5
    costs.set(1, 2.0, 4096)
    costs.set(2, 3.5, 4096)
    assert costs.seconds(1, 2048) == 1.5
    assert costs.seconds(2, 2048) == 2.5
    assert costs.seconds(2, 50_000) == 3.5


def test_a_longer_context_is_never_taken_to_cost_less() -> None:
    costs = costs_of(1.0)
    costs.set(1, 0.5, 4096)  # measured in a luckier moment
    assert costs.seconds(1, 2048) >= costs.seconds(1, 0)


def test_the_whole_table_drifts_with_the_machine() -> None:
    costs = costs_of(1.0, 1.5)
    costs.set(1, 2.0, 4096)
    for _ in range(40):
        costs.observe(1, 4096, 4.0)
    assert costs.seconds(1, 0) > 1.15


def test_the_first_time_of_a_width_may_be_a_spike() -> None:
    costs = costs_of(1.0, 1.5)
    costs.observe(3, 0, 9.0)
    assert 2.5 < costs.seconds(3, 0) <= 3.0
    for _ in range(8):
        costs.observe(3, 0, 2.0)
    assert costs.seconds(3, 0) < 2.3
    costs.observe(4, 0, 1.9)
    assert costs.seconds(4, 0) == 1.9


def test_a_long_context_does_not_make_a_short_one_dear() -> None:
    costs = costs_of(1.3, 2.0)
    costs.doubt()
    for _ in range(20):
        costs.observe(1, 600, 2.1)
    assert costs.seconds(1, 600) == pytest.approx(2.1, rel=0.05)
    assert costs.seconds(1, 100) == pytest.approx(1.3, rel=0.05)


def test_a_wide_pass_that_was_measured_too_short_does_not_make_wider_ones_free() -> None:
    costs = PassCosts()
    for width, seconds in ((1, 1.0), (4, 2.0), (8, 1.5)):
        costs.set(width, seconds)
    assert costs.up_to(12, 0)[7:] == [1.5] * 5
