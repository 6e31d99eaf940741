"""How many draft tokens pay at given chances, costs and rates."""

from __future__ import annotations

import pytest

from runtime.core.drafter import CONTINUE, LAST, Traits
from runtime.speculative.control.acceptance import Acceptance
from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.policy import Policy, Price, StoppingCriterion, fastest_length
from runtime.speculative.control.valuation import value
from tests.support.control import PASSES


def test_a_draft_ends_where_all_of_it_is_too_unlikely_to_come() -> None:
    """Each token is worth its cost by itself, and a third one is met in one of five steps."""
    known = Acceptance()
    for i in range(100):
        known.observe([0.85, 0.85], int(i % 5 < 3), 1)
    policy = Policy(known, [46 + 10.0 * k for k in range(9)], Price(4, 4, 0), 1 / 46)
    criterion = StoppingCriterion(policy, known, None, lambda k: 1e9)
    assert [criterion.should_continue(0.85) for _ in range(2)] == [CONTINUE, LAST]


def test_a_draft_that_costs_nothing_is_used_as_far_as_it_pays() -> None:
    assert fastest_length([0.9] * 8, PASSES, 1 / 46, 0.0)[0] == 3  # a fifth row makes passes half as long again
    assert fastest_length([0.99] * 8, PASSES, 1 / 46, 0.0)[0] == 8
    assert fastest_length([0.9, 0.9, 0.01, 0.9], PASSES, 1 / 46, 0.0)[0] == 2
    assert fastest_length([0.1] * 8, PASSES, 1 / 46, 0.0) == (0, 0.0)


def test_what_costs_nothing_must_be_faster_than_what_can_be_had_else() -> None:
    k, gain = fastest_length([0.5], [10.0, 12.0], 1 / 10, 0.0)
    assert (k, gain) == (1, pytest.approx(0.3))
    assert fastest_length([0.5], [10.0, 12.0], 1 / 7, 0.0) == (0, 0.0)
    assert fastest_length([0.5], [10.0, 14.0], 1 / 10, 0.0)[0] == 1


def test_the_best_of_all_lengths_is_taken_where_wider_passes_are_cheaper() -> None:
    """As on Q4_K_M models, of which sixteen rows take less than thirteen."""
    passes = [10.0 + 6.0 * k for k in range(15)] + [52.0]
    assert fastest_length([0.95] * 15, passes, 1 / 10, 0.0)[0] == 15
    known = Acceptance()
    for _ in range(40):
        known.observe([0.999] * 12, 12, 12)
    policy = Policy(known, passes, Price(1, 1, 0), 1 / 10)
    criterion = StoppingCriterion(policy, known, None, lambda k: 1e9)
    assert [criterion.should_continue(0.999) for _ in range(15)] == [CONTINUE] * 14 + [LAST]


def test_of_a_draft_of_one_token_only_the_seconds_of_the_first_count() -> None:
    def gain(first: float, rest: float) -> float:
        state = DrafterState(Traits(first))
        state.times.rest = rest
        value(state, Terms(0, 1, [46.0, 50.0], 0.0, None, None, 0.0), 1 / 46)
        return state.expected_gain

    assert gain(4.0, 40.0) == pytest.approx(gain(4.0, 1.0))
    assert gain(4.0, 40.0) > 2 * gain(40.0, 4.0)
