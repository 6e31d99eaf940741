"""What is believed of one drafter: when it is probed, disabled and enabled again, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.instruments.toy import Clock
from bench.instruments.traces import NAME, adaptive, controller_for
from runtime.core.drafter import Answer, Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.explain import kept, restore
from tests.support.control import PASSES, asks, begin, costs_of, learn, terms_of, trace


def test_what_was_learned_is_taken_up_again() -> None:
    told = trace(0.1)
    learned = controller_for(told)
    adaptive(told, learned)
    fresh, warm = controller_for(told), controller_for(told)
    restore(warm, kept(learned))
    assert warm.states[NAME].acceptance.chance(0.85) < fresh.states[NAME].acceptance.chance(0.85) - 0.2
    assert adaptive(told, warm) <= adaptive(told, fresh)


@pytest.mark.parametrize(("leaves", "is_worth_it"), [(True, False), (False, True)])
def test_a_draft_after_which_plain_passes_follow_must_pay_for_the_first_of_them(
    leaves: bool, is_worth_it: bool
) -> None:
    costs = costs_of(10.0, 14.0)
    costs.set_after(2.0)
    controller = Controller(costs, {NAME: Traits(1e-6, is_model_free=True)}, max_k=1)
    for _ in range(40):
        for is_used in (True, False) if leaves else (True,):
            begin(controller, 0)
            outcome = DraftOutcome(NAME, [0.5], 1, 1, 1e-6, 0.0, 0, int(is_used))
            learn(controller, [outcome], 1, 0.0, 10.0, 10.0)
    begin(controller, 0)
    chance = controller.states[NAME].acceptance.chance(0.5)
    controller.valuation.rate = (1 + chance) / 15  # a pass takes 14, or 16 with that
    terms = terms_of(controller)._replace(is_plain=False)
    assert (controller.length(terms, NAME, [0.5])[0] == 1) is is_worth_it


@pytest.mark.parametrize(
    "state",
    [{}, {NAME: None}, {NAME: {"bins": "?"}}, {NAME: {"bins": [[1, 2]], "moves": [], "starts": [], "total": [1, 1]}}],
)
def test_a_damaged_memory_is_no_memory(state: dict[str, object]) -> None:
    controller, fresh = controller_for(trace(0.5)), controller_for(trace(0.5))
    restore(controller, state)
    assert np.array_equal(controller.states[NAME].acceptance.chances, fresh.states[NAME].acceptance.chances)


def test_a_draft_that_takes_far_longer_than_believed_is_cut_short() -> None:
    controller, clock = Controller(costs_of(*PASSES), {NAME: Traits(1.0)}, max_k=8), Clock()
    begin(controller, 0)
    controller.passes.clock = clock
    criterion, answers = controller.criterion(NAME, Choice(Decision.USE)), []
    for seconds in (1.0, 1.0, 1.0, 20.0):
        clock.advance(seconds)
        answers.append(criterion.should_continue(0.999))
    assert answers == [Answer.CONTINUE] * 3 + [Answer.LAST]


def n_lookups(seconds: float, n_steps: int = 80) -> int:
    """How often a lookup is asked that takes so long and finds nothing; a plain pass takes a second."""
    lookup = Traits(seconds, is_model_free=True)
    controller = Controller(costs_of(1.0, 1.2), {"ngram": lookup}, max_k=1)
    n = 0
    for _ in range(n_steps):
        begin(controller, 0)
        if is_asked := asks(controller, "ngram"):
            n += 1
        found = [DraftOutcome("ngram", [], 0, 0, seconds, 0.0, 0, n_used=0)] * is_asked
        learn(controller, found, 1, 0.0, 1.0, 1.0)
    return n


def test_a_lookup_that_is_of_no_use_is_asked_more_seldom_where_asking_is_not_free() -> None:
    assert n_lookups(1e-5) == 80
    assert n_lookups(0.006) == 4 + 38
    assert n_lookups(0.03) < 16
