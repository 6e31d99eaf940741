"""What a drafter's tokens and steps take: outliers hardly count, and time that nobody measured is the drafter's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.instruments.traces import NAME, adaptive
from runtime.core.drafter import Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import DrafterState, DraftOutcome, DraftTimes
from runtime.speculative.control.tuning import TUNING
from tests.support.control import PASSES, begin, costs_of, learn, said, trace


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
def test_a_drafter_that_is_slower_than_its_parts_is_parked(factor: float) -> None:
    """Steps with drafts take longer than drafting and the pass: nobody knows why."""
    told = replace(trace(0.9, n=1500), hidden=factor)
    assert told.plain_seconds / adaptive(told) > 0.92


def test_one_long_step_is_no_evidence_against_a_drafter() -> None:
    state = DraftTimes(1.0)
    for seconds in (0.0, 100.0, 0.0, 100.0, 0.0):
        state.learn_unexplained(seconds)
    assert state.unexplained == 0.0
    for _ in range(4):
        state.learn_unexplained(10.0)
    assert state.unexplained == pytest.approx(6.57, rel=0.01)


def test_passes_that_take_longer_than_expected_are_paid_by_the_drafter() -> None:
    controller = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8)
    for _ in range(8):
        begin(controller, 0)
        learn(controller, [said(controller, 0.9, 3, 3, seconds=4.0)], 4, 12.0, 300.0, 312.0)
    assert controller.states[NAME].times.unexplained == pytest.approx(300.0 - PASSES[3], rel=0.1)


def test_what_a_lookup_lost_fades_while_it_proposes_and_is_not_used() -> None:
    state = DrafterState(Traits(1e-6, is_model_free=True))
    state.times.unexplained = 1.0
    state.learn(DraftOutcome(NAME, [], 0, 0, 1e-6, 0.0, 0, n_used=0), 0.0)
    assert state.times.unexplained == 1.0
    state.learn(DraftOutcome(NAME, [0.9], 1, 1, 1e-6, 0.0, 0, n_used=0), 0.0)
    assert state.times.unexplained == TUNING.recent_decay


def test_a_time_far_off_is_believed_when_the_next_agrees() -> None:
    times = DraftTimes(0.01)
    for seconds, believed in ((0.2, 0.011), (0.3, 0.2), (0.02, 0.182), (0.01, 0.02)):
        times.learn(seconds, 0.0, 0)
        assert times.first == pytest.approx(believed)


def test_a_drafter_that_was_held_up_drafts_as_far_as_before_once_it_is_as_quick() -> None:
    times = DraftTimes(0.01)
    for first, rest, n_rest in ((0.2, 0.2, 1), (0.2, 0.2, 1), (0.01, 0.0, 0), (0.01, 0.0, 0)):
        times.learn(first, rest, n_rest)
    assert times.rest == pytest.approx(0.01, rel=0.2)
