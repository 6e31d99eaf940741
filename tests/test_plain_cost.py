"""What plain decode costs stays known while drafts are made: it is tried now and then, and wrong beliefs mend."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench.instruments.traces import NAME
from runtime.core.drafter import NO_DRAFTER, Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.tuning import TUNING
from tests.support.control import PASSES, asks, begin, costs_of, learn, n_taken, said, terms_of


def test_what_sampling_costs_is_charged_by_the_token() -> None:
    """Five tokens at once take five times the sampling of one: that is no advantage of plain decode, nor against it."""
    controller = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8)
    for _ in range(200):
        begin(controller, 0)
        learn(controller, [said(controller, 0.9, 3, 3)], 4, 12.0, 82.0, 94.0 + 4 * 20.0)
    begin(controller, 0)
    assert terms_of(controller).plain_rate == pytest.approx(1 / (46.0 + 20.0), rel=0.01)


def test_plain_passes_are_made_in_a_row_now_and_then_so_that_their_cost_is_known() -> None:
    controller, asked, steady = Controller(costs_of(*PASSES), {NAME: Traits(1.0)}, max_k=8), [], []
    for _ in range(600):
        begin(controller, 0)
        asked.append(asks(controller, NAME))
        learn(controller, [said(controller, 0.9, 3, 3)] if asked[-1] else [], 4 if asked[-1] else 1, 3.0, 82.0, 85.0)
        steady.append(controller.plain_passes.is_steady)
    first = asked.index(False)
    assert asked[first : first + 5] == [False] * 4 + [True]
    # After a draft, a plain pass is not as in plain decode
    assert steady[first : first + 5] == [False, True, True, True, False]
    starts = [n for n in range(1, 600) if asked[n - 1] and not asked[n]]
    assert starts[0] <= 17
    assert all(after > 1.8 * before for before, after in pairwise(starts) if after < 256)
    assert asked.count(False) <= 20
    assert asked[300:].count(False) == 4


def test_what_plain_decode_cost_in_a_busy_moment_at_load_is_soon_found_wrong() -> None:
    """Plain passes seemed to take twice as long, and drafts that lose to gain."""
    costs = costs_of(92, *PASSES[1:])
    costs.doubt()
    controller = Controller(costs, {NAME: Traits(4.0)}, max_k=8)
    for _ in range(60):
        begin(controller, 0)
        k = 3 if asks(controller, NAME) else 0
        learn(
            controller,
            [said(controller, 0.6, 1, 3)] if k else [],
            2 if k else 1,
            4.0 * k,
            PASSES[k],
            PASSES[k] + 4.0 * k,
        )
        if k or controller.plain_passes.is_steady:
            controller.passes.learn(NAME if k else NO_DRAFTER, 1 + k, 0, PASSES[k])
    assert controller.passes.costs.seconds(1, 0) == pytest.approx(46, rel=0.25)


def test_the_less_drafts_gain_the_more_often_plain_passes_are_made() -> None:
    def plain_passes(draft: float) -> int:
        controller, asked = Controller(costs_of(*PASSES), {NAME: Traits(draft)}, max_k=3), list[bool]()
        for _ in range(600):
            begin(controller, 0)
            asked.append(asks(controller, NAME))
            drafted = [said(controller, 0.9, 3, 3, seconds=draft)] if asked[-1] else []
            learn(controller, drafted, 4 if drafted else 1, draft, 82.0, 82.0 + draft)
        return asked[100:].count(False)

    assert plain_passes(3.0) <= 8
    assert 12 <= plain_passes(95.0) <= 100


def test_drafters_are_valued_again_when_all_passes_have_become_slower() -> None:
    controller = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8)
    for _ in range(20):
        begin(controller, 0)
    before = controller.valuation.rate
    controller.passes.costs.drift(2.0)
    for _ in range(TUNING.valuation_interval):
        begin(controller, 0)
    assert controller.valuation.rate < 0.7 * before


def test_passes_that_are_wrongly_believed_to_be_dear_are_tried_again() -> None:
    """A drafter that is always right, beside passes over several rows that cost hardly more than one: once they seemed
    to cost ten times that.
    """
    controller, real, came, seconds = (
        Controller(costs_of(46.0, 460.0), {NAME: Traits(1.0)}, max_k=1),
        (46.0, 48.0),
        0,
        0.0,
    )
    for n in range(3000):
        begin(controller, 0)
        asked = asks(controller, NAME)
        k = n_taken(controller, NAME, 0.99, most=1) if asked else 0
        learn(
            controller,
            [said(controller, 0.99, 1, 1, is_used=k > 0, seconds=1.0)] if asked else [],
            1 + k,
            float(asked),
            real[k],
            real[k] + asked,
        )
        if k or controller.plain_passes.is_steady:
            controller.passes.learn(NAME if k else NO_DRAFTER, 1 + k, 0, real[k])
        if n > 2500:
            came, seconds = came + 1 + k, seconds + real[k] + asked
    assert came / seconds > 1.5 / 46.0


def test_passes_that_reuse_what_a_drafter_computed_have_costs_of_their_own() -> None:
    controller = Controller(
        costs_of(*PASSES), {"layerskip": Traits(4.0, spares_work=True), "model": Traits(4.0)}, max_k=8
    )
    controller.passes.learn("layerskip", 4, 0, 41.0)
    controller.passes.scale(lambda width: width > 1, 2.0)
    assert controller.passes.of("layerskip").seconds(4, 0) == pytest.approx(0.95 * 164)
    assert controller.passes.costs.seconds(4, 0) == pytest.approx(0.985 * 164)  # it only drifts along
    assert controller.passes.of(NO_DRAFTER) is controller.passes.of("model") is controller.passes.costs


def test_a_machine_that_becomes_faster_does_so_for_plain_passes_too() -> None:
    controller = Controller(costs_of(*PASSES), {"layerskip": Traits(4.0, spares_work=True)}, max_k=8)
    for _ in range(50):
        controller.passes.learn("layerskip", 4, 0, 41.0)
    begin(controller, 0)
    assert terms_of(controller).plain_rate > 1.1 / PASSES[0]
