"""What plain decode costs stays known while drafts are made: it is tried now and then, and wrong beliefs mend."""

from __future__ import annotations

import pytest

from bench.instruments.traces import NAME
from runtime.core.drafter import NO_DRAFTER, Traits
from runtime.speculative.control.controller import Controller
from tests.support.control import PASSES, begin, costs_of, learn, said, terms_of


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
