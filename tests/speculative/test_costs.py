"""What passes cost, learned from scripted times and asked before it is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.instruments.traces import NAME
from runtime.core.drafter import NO_DRAFTER, Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts, interpolated
from runtime.speculative.control.tuning import TUNING
from tests.support.control import PASSES, begin, costs_of, learn, said, terms_of


def test_interpolation_is_exact_at_points_and_linear_between_and_beyond() -> None:
    points = [(1, 1.0), (2, 1.5), (4, 2.0)]
    assert interpolated(points, 6) == [1.0, 1.5, 1.75, 2.0, 2.25, 2.5]
    assert interpolated(points, 3) == [1.0, 1.5, 1.75]
    assert interpolated([(1, 1.0), (2, 3.0), (3, 2.0)], 5) == [1.0, 3.0, 2.0, 2.0, 2.0]


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


def test_what_passes_in_use_have_told_is_known_at_the_next_start_of_a_slower_machine() -> None:
    before, after = costs_of(1.0, 1.5, 2.0), costs_of(3.0, 4.5, 6.0)
    before.doubt()
    for _ in range(20):
        before.observe(2, 0, 1.8)
        before.observe(1, 600, 1.4)
    after.restore(json.loads(json.dumps(before.state())))
    for width, n_context in ((2, 0), (1, 600)):
        ratio = before.seconds(width, n_context) / before.seconds(1, 0)
        assert after.seconds(width, n_context) == pytest.approx(3 * ratio)
    assert (after.seconds(1, 0), after.seconds(3, 0)) == (3.0, 6.0)


def test_what_was_measured_at_load_bounds_what_an_earlier_start_has_learned() -> None:
    """It may have been beside programs that are gone."""
    after = costs_of(1.0, 1.5)
    after.restore([(0, 2, 6.0), (2, 2, 60.0)])
    most = TUNING.most_learned_change
    assert (after.seconds(2, 0), after.seconds(2, 600)) == (1.5 * most, 1.5 * most * most)


def test_passes_that_other_threads_made_are_not_kept() -> None:
    costs = costs_of(1.0, 1.5)
    costs.doubt()
    for _ in range(4):
        costs.observe(2, 0, 1.6)
    assert costs.state()
    costs.scale(lambda width: width > 1, 2.0)
    assert not costs.state()


@pytest.mark.parametrize(
    "state", [None, 7, [(0, 2)], [(0, 2, -1.0)], [(-1, 2, 1.5)], [(0, 2, 1e9)], [(0, 2, 1.5)] * 9999]
)
def test_times_that_nobody_can_have_measured_are_not_taken_up(state: Any) -> None:
    costs = costs_of(1.0, 1.5)
    with pytest.raises((TypeError, ValueError)):
        costs.restore(state)
    assert costs.up_to(2, 0) == [1.0, 1.5]


def test_what_sampling_costs_is_charged_by_the_token() -> None:
    """Five tokens at once take five times the sampling of one: that is no advantage of plain decode, nor against it."""
    controller = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8)
    for _ in range(200):
        begin(controller, 0)
        learn(controller, [said(controller, 0.9, 3, 3)], 4, 12.0, 82.0, 94.0 + 4 * 20.0)
    begin(controller, 0)
    assert terms_of(controller).plain_rate == pytest.approx(1 / (46.0 + 20.0), rel=0.01)


def test_passes_that_reuse_what_a_drafter_computed_have_costs_of_their_own() -> None:
    controller = Controller(
        costs_of(*PASSES), {"layerskip": Traits(4.0, spares_work=True), "model": Traits(4.0)}, max_k=8
    )
    controller.passes.learn("layerskip", 4, 0, 41.0)
    controller.passes.scale(lambda width: width > 1, 2.0)
    assert controller.passes.of("layerskip").seconds(4, 0) == pytest.approx(0.95 * 164)
    assert controller.passes.costs.seconds(4, 0) == pytest.approx(0.985 * 164)  # it only drifts along
    assert controller.passes.of(NO_DRAFTER) is controller.passes.of("model") is controller.passes.costs
