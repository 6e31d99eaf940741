"""Costs and decisions under scripted times and acceptances; no clock, no model."""

from __future__ import annotations

import random

import pytest

from runtime.controller import Controller, Reason, Scored
from runtime.costs import PassCosts, fastest_threads, interpolate, measure


def costs_of(*seconds: float) -> PassCosts:
    costs = PassCosts()
    for width, each in enumerate(seconds, start=1):
        costs.set(width, each)
    return costs


LLAMA_1B = costs_of(46, 67, 79, 82, 129, 132, 138, 143, 150)  # milliseconds by width, on two CPU cores


def play(controller: Controller, chance: float, steps: int, seed: int = 1, conf: float = 0.9) -> tuple[float, float]:
    """Steps of a simulated drafter whose tokens are accepted with `chance`; returns (time, tokens)."""
    rng, time, tokens, each = random.Random(seed), 0.0, 0, controller.known["model"].seconds
    for _ in range(steps):
        k, survival, n = 0, 1.0, 0
        controller.begin(0)
        asked = controller.is_worth_asking("model")
        while asked and k < controller.max_k and controller.goes_on("model", survival, k, conf, controller.max_k):
            survival *= controller.known["model"].calibrated(conf)
            k += 1
        while n < k and rng.random() < chance:
            n += 1
        draft, verify = (k or asked) * each, controller.costs.seconds(1 + k, 0)
        said = [Scored("model", [conf] * min(k, n + 1), n, k, draft, k > 0)] if asked else []
        controller.learn(said, n + 1, draft, verify, draft + verify)
        time, tokens = time + draft + verify, tokens + n + 1
    return time, tokens


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
    assert costs.seconds(2, 0) > 1.6  # the other widths drift along


def test_an_unmeasured_context_length_borrows_the_nearest() -> None:
    costs = costs_of(1.0, 1.5)
    assert costs.seconds(2, 5000) == 1.5
    costs.observe(2, 5000, 3.0)
    assert costs.seconds(2, 0) == 1.5
    assert 1.5 < costs.seconds(2, 5000) <= 3.0


def test_measuring_stops_at_the_deadline_but_never_before_width_one() -> None:
    costs, seen = PassCosts(), []
    measure(costs, seen.append, 8, deadline=0.0)
    assert set(seen) == {1}
    measure(costs, seen.append, 8, deadline=float("inf"))
    assert set(costs.widths(0)) == set(range(1, 9))


def test_the_fastest_number_of_threads_wins() -> None:
    current = [0]

    def work(rows: int) -> None:
        sum(range({1: 60_000, 2: 5_000, 4: 60_000}[current[0]]))

    assert fastest_threads([1, 2, 4], lambda n: current.__setitem__(0, n), work, 1, float("inf")) == 2


def test_a_step_in_the_cost_of_a_pass_is_not_climbed_without_need() -> None:
    controller = Controller(LLAMA_1B, {"model": 4.0}, max_k=8)
    play(controller, 0.6, 400)
    controller.begin(0)
    drafted = [controller.goes_on("model", 0.6**depth, depth, 0.9, 8) for depth in range(4)]
    assert drafted == [True, True, True, False]  # four rows cost little more than three, five half as much again


def test_a_free_drafter_must_beat_the_one_that_is_asked_after_it() -> None:
    def drafts(seconds: float) -> bool:
        controller = Controller(LLAMA_1B, {"ngram": 0.001, "model": seconds}, max_k=8)
        return controller.goes_on("ngram", 1.0, 0, 0.7, 8)

    assert drafts(seconds=40.0)
    assert not drafts(seconds=0.5)


@pytest.mark.parametrize(("chance", "gains"), [(0.95, True), (0.8, True), (0.2, False), (0.0, False)])
def test_drafting_happens_when_it_pays_and_costs_little_when_it_does_not(chance: float, gains: bool) -> None:
    controller = Controller(LLAMA_1B, {"model": 4.0}, max_k=8)
    play(controller, chance, 300)
    time, tokens = play(controller, chance, 2000, seed=2)
    ratio = tokens / time * LLAMA_1B.seconds(1, 0)
    assert ratio > 1.1 if gains else ratio > 0.98


def test_a_drafter_that_is_asked_in_vain_is_asked_no_more() -> None:
    controller = Controller(LLAMA_1B, {"model": 10.0}, max_k=8)
    play(controller, 0.05, 100, conf=0.3)
    time, tokens = play(controller, 0.05, 1000, conf=0.3)
    assert tokens / time * 46 > 0.98


def test_a_draft_as_slow_as_the_target_is_refused_for_its_cost() -> None:
    controller = Controller(LLAMA_1B, {"model": 46.0}, max_k=8)
    time, tokens = play(controller, 1.0, 1000)
    assert tokens / time * 46 > 0.98
    assert controller.reason().code == "cost"


def test_a_parked_drafter_is_probed_and_comes_back() -> None:
    controller = Controller(LLAMA_1B, {"model": 4.0}, max_k=8)
    play(controller, 0.0, 400)
    assert controller.reason().code == "acceptance"
    play(controller, 0.95, 6000, seed=3)
    time, tokens = play(controller, 0.95, 500, seed=4)
    assert tokens / time * 46 > 1.3


def test_a_drafter_that_costs_nothing_is_asked_even_while_it_does_not_pay() -> None:
    controller = Controller(LLAMA_1B, {"model": 0.01}, max_k=8)
    play(controller, 0.0, 400)
    controller.begin(0)
    assert controller.is_worth_asking("model")
    assert not controller.goes_on("model", 1.0, 0, 0.9, 8)


def test_what_sampling_costs_is_charged_by_the_token() -> None:
    """Five tokens at once take five times the sampling of one: that is no advantage of plain decode, nor against it."""
    controller = Controller(LLAMA_1B, {"model": 4.0}, max_k=8)
    for _ in range(200):
        controller.begin(0)
        controller.learn([Scored("model", [0.9] * 3, 3, 3, 12.0, True)], 4, 12.0, 82.0, 94.0 + 4 * 20.0)
    controller.begin(0)
    assert controller.plain_rate == pytest.approx(1 / (46.0 + 20.0), rel=0.01)


def test_a_drafter_that_could_not_be_used_is_not_held_to_have_declined() -> None:
    controller = Controller(LLAMA_1B, {"model": 4.0}, max_k=8)
    controller.learn([Scored("model", [0.9], 1, 1, 4.0, is_used=False, was_open=False)], 2, 0.0, 67.0, 67.0)
    assert controller.known["model"].declined == 0
    controller.learn([Scored("model", [0.9], 1, 1, 4.0, is_used=False)], 2, 0.0, 67.0, 67.0)
    assert controller.known["model"].declined > 0


def test_a_fixed_k_is_kept_whatever_it_costs() -> None:
    controller = Controller(LLAMA_1B, {"model": 460.0}, max_k=8, fixed_k=3)
    assert controller.is_worth_asking("model")
    assert [controller.goes_on("model", 0.0, depth, 0.0, 8) for depth in range(5)] == [True, True, True, False, False]


def test_the_reason_for_being_off_is_kept() -> None:
    assert Controller(LLAMA_1B, {}, 8, off=Reason("user", "drafters are switched off")).reason().code == "user"


def test_acceptance_is_censored_by_the_window() -> None:
    known = Controller(LLAMA_1B, {"model": 4.0}, max_k=4).known["model"]
    for _ in range(100):
        known.observe([0.9, 0.9], 0)
    assert known.at(0) < 0.1
    assert known.tried[1] == 0  # the second token was never tried: nothing is known of it
