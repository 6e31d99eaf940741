"""What the controller chooses on traces of acceptance, under scripted times; no clock, no model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.instruments.traces import NAME, adaptive, controller_for, fixed, step
from runtime.core.drafter import Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.tuning import TUNING
from tests.support.control import PASSES, SLOW, STEEP, asks, begin, costs_of, learn, length, n_taken, n_unasked, trace

LOOKUP = Traits(0.01, is_model_free=True)


def test_a_free_drafter_must_beat_the_one_that_is_asked_after_it() -> None:
    def used(seconds: float) -> int:
        costs = costs_of(*PASSES)
        return length(Controller(costs, {"ngram": LOOKUP, "model": Traits(seconds)}, max_k=8), "ngram", [0.7] * 3)[0]

    assert used(seconds=40.0)
    assert not used(seconds=0.5)


def test_what_drafters_bring_to_other_replies_is_no_price_for_this_one() -> None:
    """A file that was given was copied 30 tokens a pass; a model would have to read a prompt first, and is left out."""
    known = {"prediction": LOOKUP, "ngram": LOOKUP, "model": Traits(0.5)}
    controller = Controller(costs_of(*PASSES), known, max_k=8)
    controller.states["prediction"].expected_gain = 30.0
    for drafters, is_used in ((None, False), (frozenset({"ngram", "prediction"}), True)):
        controller.valuation.reset()
        begin(controller, 0, drafters=drafters)
        assert bool(length(controller, "ngram", [0.7] * 3)[0]) == is_used


@pytest.mark.parametrize(("chance", "least"), [(0.95, 1.5), (0.8, 1.2), (0.5, 0.98), (0.2, 0.98), (0.0, 0.98)])
def test_drafting_happens_when_it_pays_and_costs_little_when_it_does_not(chance: float, least: float) -> None:
    told = trace(chance, n=3000)
    assert told.plain_seconds / adaptive(told) > least


@pytest.mark.parametrize(
    "law", ["unsure 0.3", "unsure 0.9", "informed 0.5", "informed 0.9", "0.9, then 0.1", "0.1, then 0.9"]
)
def test_it_is_about_as_good_as_the_best_fixed_k_that_one_could_have_chosen(law: str) -> None:
    told = trace(law, n=2000)
    assert min(fixed(told, k) for k in range(9)) / adaptive(told) > 0.95


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0])
def test_a_drafter_that_is_slower_than_its_parts_is_parked(factor: float) -> None:
    """Steps with drafts take longer than drafting and the pass: nobody knows why."""
    told = replace(trace(0.9, n=1500), hidden=factor)
    assert told.plain_seconds / adaptive(told) > 0.92


def test_a_draft_as_slow_as_the_target_is_refused_for_its_cost() -> None:
    told = trace(1.0, SLOW, n=2000)
    controller = controller_for(told)
    assert told.plain_seconds / adaptive(told, controller) > 0.98
    assert controller.reason().code == "cost"
    first_reply = trace(1.0, SLOW, n=96)
    assert first_reply.plain_seconds / adaptive(first_reply) > 0.98


def test_after_a_collapse_of_acceptance_twenty_passes_are_enough_to_be_plain_again() -> None:
    told = trace("0.9, then 0.1", n=2000)
    controller, place, seconds, came, since = controller_for(told), 0, 0.0, 0, 0
    while place < len(told.agrees):
        n, took = step(controller, told, place)
        since += place >= 1000
        if since > 20:
            seconds, came = seconds + took, came + n
        place += n
    assert came * told.passes[0] / seconds > 0.98


@pytest.mark.parametrize("chance", [1.0, 0.99])
def test_a_drafter_that_is_better_than_one_expects_is_found_out_in_the_first_reply(chance: float) -> None:
    told = trace(chance, STEEP, n=128)
    assert told.plain_seconds / adaptive(told) > 1.2
    assert trace(0.1, STEEP, n=512).plain_seconds / adaptive(trace(0.1, STEEP, n=512)) > 0.98


def test_a_free_drafter_is_asked_on_every_step_even_while_it_does_not_pay() -> None:
    controller = Controller(costs_of(*PASSES), {"ngram": LOOKUP}, max_k=8)
    for _ in range(100):
        begin(controller, 0)
        assert asks(controller, "ngram")
        k, _ = length(controller, "ngram", [0.9] * 4)
        learn(controller, [DraftOutcome("ngram", [0.9] * 4, 1, 0, 0.01, 0.0, 0, k)], 1, 0.01, 46.0, 46.0)
    assert k == 0


def test_a_fixed_k_is_kept_whatever_it_costs() -> None:
    controller = Controller(costs_of(*PASSES), {NAME: Traits(460.0)}, max_k=8, fixed_k=3)
    assert asks(controller, NAME)
    assert n_taken(controller, NAME, 0.0) == 3


def test_the_reason_for_being_off_is_kept() -> None:
    assert Controller(costs_of(*PASSES), {}, 8, off=Reason("user", "drafters are switched off")).reason().code == "user"


def test_a_drafter_that_never_spoke_is_not_blamed() -> None:
    controller = Controller(costs_of(*PASSES), {"grammar": LOOKUP, "ngram": LOOKUP}, max_k=8)
    assert controller.reason().text == "no guess came from the required format or earlier text of this chat"


@pytest.mark.parametrize(
    ("seen", "gain", "sentence"),
    [
        (3, -1.0, "too few guesses from earlier text of this chat are known yet to judge them"),
        (300, 1.0, "guesses from earlier text of this chat help, but few were sure enough to be checked"),
        (300, -1.0, "of the guesses from earlier text of this chat were right, at best"),
    ],
)
def test_a_reason_names_the_source_of_guesses_in_plain_words(seen: int, gain: float, sentence: str) -> None:
    controller = Controller(costs_of(*PASSES), {"ngram": LOOKUP}, max_k=8)
    state = controller.states["ngram"]
    state.acceptance.n_seen, state.expected_gain = seen, gain
    assert sentence in controller.reason().text


def test_who_is_parked_rests_until_the_next_probe_or_until_one_can_be_paid() -> None:
    hopeless = trace(0.05, n=200)
    controller = controller_for(hopeless)
    adaptive(hopeless, controller)
    state = controller.states[NAME]
    controller.exploration.seconds, state.probes.since = 0.0, 3
    assert n_unasked(controller, NAME) == state.probes.interval - 3 > 0
    controller.exploration.seconds += controller.exploration.credit + 100 * PASSES[0] / 1e3
    assert n_unasked(controller, NAME) > 100 / TUNING.probe_share - 1  # plain passes
    controller.fixed_k = 2
    assert n_unasked(controller, NAME) == 0


def test_a_lookup_whose_first_answers_took_long_is_asked_on() -> None:
    """As in the first steps of a process; what is of use is asked in every step, whatever that costs."""
    controller = Controller(costs_of(*[1.0] * 9), {"ngram": Traits(1e-5, is_model_free=True)}, max_k=8)
    for n in range(40):
        begin(controller, 0)
        assert asks(controller, "ngram") or n > 8
        seconds = 0.05 if n < 3 else 1e-5
        learn(controller, [DraftOutcome("ngram", [0.99] * 8, 8, 8, seconds, 0.0, 0, 8, 7.0)], 9, 0.0, 1.0, 1.0)
    assert controller.states["ngram"].times.first < 0.01
