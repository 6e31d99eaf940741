"""What is believed of one drafter: when it is probed, disabled and enabled again, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.instruments.toy import Clock
from bench.instruments.traces import NAME, adaptive, controller_for, step
from runtime.core.drafter import Answer, Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.kept import kept, restore
from runtime.speculative.control.policy import Policy, Price
from tests.support.control import PASSES, asks, begin, costs_of, learn, n_taken, said, terms_of, trace


@pytest.mark.parametrize("has_own", [False, True])
def test_probes_that_are_right_are_followed_by_longer_ones_at_once(has_own: bool) -> None:
    """As far as they could pay by what passes over that drafter's tokens cost, whatever others cost."""
    passes, verified = (10.0, 20.0, 20.0, 26.0, 32.0, 38.0, 44.0, 50.0, 56.0), list[int]()
    controller = Controller(
        costs_of(*(passes if not has_own else (10.0, 500.0))), {NAME: Traits(4.0, spares_work=has_own)}, max_k=8
    )
    if own := controller.states[NAME].costs:
        for width, seconds in enumerate(passes, start=1):
            own.set(width, seconds)
    for _ in range(40):
        begin(controller, 0)
        if asks(controller, NAME):
            verified.append(n_taken(controller, NAME, 0.99))
            n = max(1, verified[-1])
            learn(
                controller,
                [said(controller, 0.99, n, n, is_used=verified[-1] > 0, seconds=4.0)],
                1 + verified[-1],
                4.0,
                10.0,
                14.0,
            )
        else:
            learn(controller, [], 1, 0.0, 10.0, 10.0)
    assert verified[:6] == [0, 0, 2, 4, 8, 8]


def test_a_drafter_that_does_not_pay_as_far_as_is_known_is_probed_once_before_decoding_has_paid_for_it() -> None:
    def n_probes(seconds: float) -> int:
        controller = Controller(costs_of(10.0, 12.0, 14.0, 16.0), {NAME: Traits(seconds)}, max_k=3)
        for _ in range(50):
            controller.states[NAME].acceptance.observe([0.5], 0, 1)
        n = 0
        for _ in range(20):
            begin(controller, 0)
            n += asks(controller, NAME)
            learn(controller, [], 1, 0.0, 10.0, 10.0 + seconds * n)
        return n

    assert n_probes(9.0) == 1
    assert n_probes(50.0) == 0  # it takes longer than a pass


def test_a_drafter_is_valued_anew_when_what_it_meets_has_changed() -> None:
    controller = Controller(costs_of(10.0, 12.0, 14.0), {NAME: Traits(1.0)}, max_k=2)
    state = controller.states[NAME]
    for _ in range(50):
        state.acceptance.observe([0.95], 1, 1)
    state.policy = Policy(state.acceptance, [10.0, 12.0, 14.0], Price(1, 1, 0), 0.1)
    state.acceptance.bins[0][1] /= 4  # of a confidence that is never met
    assert not state.has_news
    for _ in range(10):
        state.acceptance.observe([0.95], 0, 1)
    assert state.has_news


def test_a_parked_drafter_is_looked_at_now_and_then_and_comes_back() -> None:
    told = trace("0.1, then 0.9", n=4000)
    controller, place = controller_for(told), 0
    while place < 2000:
        place += step(controller, told, place)[0]
    assert controller.reason().code == "acceptance"
    parked, seconds = place, 0.0
    while place < 4000:
        n, took = step(controller, told, place)
        place, seconds = place + n, seconds + took
    assert (4000 - parked) * told.passes[0] / seconds > 1.3


def test_a_drafter_is_let_go_when_it_was_the_machine_that_became_slower() -> None:
    """Everything takes three times as long from one moment on: drafting still pays, though it is slower than plain
    decode was.
    """
    controller, asked = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8), list[bool]()
    for i in range(400):
        slow = 3 if i > 50 else 1
        begin(controller, 0)
        asked.append(asks(controller, NAME))
        if asked[-1]:
            controller.passes.costs.observe(4, 0, 82.0 * slow)
            learn(
                controller, [said(controller, 0.9, 3, 3, seconds=4.0 * slow)], 4, 12.0 * slow, 82.0 * slow, 94.0 * slow
            )
        else:
            controller.passes.costs.observe(1, 0, 46.0 * slow)
            learn(controller, [], 1, 0.0, 46.0 * slow, 46.0 * slow)
    assert sum(asked[60:]) > 0.85 * len(asked[60:])


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


def test_a_sudden_change_of_its_seconds_is_heeded_in_the_next_step() -> None:
    controller = Controller(costs_of(*PASSES), {NAME: Traits(4.0)}, max_k=8)
    for seconds, pays in ((4.0, True), (4.0, True), (800.0, True), (800.0, False)):
        begin(controller, 0)
        assert asks(controller, NAME)
        learn(controller, [said(controller, 0.9, 3, 3, seconds=seconds)], 4, 3 * seconds, 82.0, 82.0 + 3 * seconds)
        begin(controller, 0)
        assert (controller.choose(terms_of(controller), NAME).decision is Decision.USE) == pays


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


def test_seconds_left_for_probes_are_kept_for_the_next_start() -> None:
    before = Controller(costs_of(10.0, 12.0), {NAME: Traits(1.0)}, max_k=1)
    learn(before, [], 1, 0.0, 100.0, 100.0)
    before.exploration.seconds = 10.0
    after = Controller(costs_of(10.0, 12.0), {NAME: Traits(1.0)}, max_k=1)
    restore(after, kept(before))
    assert kept(after)["seconds for probes"] == pytest.approx(0.6)
    before.exploration.seconds = 11.0
    restore(after, kept(before))
    assert kept(after)["seconds for probes"] == pytest.approx(-0.4)
    for broken in ("many", float("nan"), None):
        restore(after, {"seconds for probes": broken})
        assert kept(after)["seconds for probes"] == pytest.approx(-0.4)
