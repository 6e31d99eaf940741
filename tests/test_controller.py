"""Costs and decisions under scripted times and acceptances; no clock, no model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from bench.simulate import LAWS, NAME, Trace, adaptive, controller_for, fixed, made_up, step, unsure
from runtime.speculative.control.acceptance import Acceptance
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts, fastest_threads, interpolate, measure
from runtime.speculative.control.drafter_state import Known, Scored
from runtime.speculative.control.policy import Policy, Price, best_length
from runtime.speculative.control.probes import Probes
from runtime.speculative.control.reasons import Reason


def costs_of(*seconds: float) -> PassCosts:
    costs = PassCosts()
    for width, each in enumerate(seconds, start=1):
        costs.set(width, each)
    return costs


PASSES = (46, 67, 79, 82, 129, 132, 138, 143, 150)  # milliseconds by width: Llama-3.2-1B's shape on two CPU cores
CHEAP, SLOW = (
    (PASSES, 5.0, 4.0),
    (PASSES, 50.0, 46.0),
)  # with the milliseconds of a first and of a further drafted token
STEEP = (
    (9.4, 17.6, 23.1, 23.3, 24.7, 26.2, 28.4, 30.6, 34.4),
    3.2,
    3.2,
)  # 135M parameters there: only long drafts pay that are nearly always right


def trace(law: str | float, costs: tuple[Sequence[float], float, float] = CHEAP, n: int = 1000, seed: int = 1) -> Trace:
    return made_up(LAWS[law] if isinstance(law, str) else unsure(law), costs, n, seed)


def said(confidence: float, n: int, n_right: int, is_used: bool = True, seconds: float = 0.004) -> Scored:
    return Scored(NAME, [confidence] * n, min(n, n_right + 1), n_right, seconds, 0.0, n - 1, is_used)


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


def test_a_plain_pass_that_is_held_up_is_not_what_plain_passes_cost() -> None:
    """Even where the time is up after it."""
    costs, seen = PassCosts(), list[int]()

    def run(width: int) -> None:
        seen.append(width)
        time.sleep(0.05 if len(seen) == 2 else 0.001)

    measure(costs, run, 8, deadline=0.0)
    assert costs.seconds(1, 0) < 0.02


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


def test_a_model_too_slow_for_a_comparison_keeps_all_threads() -> None:
    tried: list[int] = []
    assert fastest_threads([1, 2, 4], tried.append, lambda rows: None, 1, deadline=float("-inf")) == 4
    assert tried == [4]


def test_a_step_in_the_cost_of_a_pass_is_not_climbed_without_need() -> None:
    known = Acceptance()
    for i in range(100):
        known.observe([0.85, 0.85], int(i % 5 < 3), 1)  # six in ten are right
    policy = Policy(known, PASSES, Price(4, 4, 0), 1 / 46)
    chance = known.chance(0.85)
    drafted = [policy.includes(depth, chance ** (depth + 1), 0.85) for depth in range(4)]
    assert drafted == [True, True, True, False]  # four rows cost little more than three, five half as much again


def test_a_draft_that_costs_nothing_is_used_as_far_as_it_pays() -> None:
    assert best_length([0.9] * 8, PASSES, 1 / 46, 0.0)[0] == 8
    assert best_length([0.6] * 8, PASSES, 1 / 46, 0.0)[0] == 3
    assert best_length([0.9, 0.9, 0.01, 0.9], PASSES, 1 / 46, 0.0)[0] == 2
    assert best_length([0.1] * 8, PASSES, 1 / 46, 0.0) == (0, 0.0)


def test_a_free_drafter_must_beat_the_one_that_is_asked_after_it() -> None:
    def used(seconds: float) -> int:
        costs = costs_of(*PASSES)
        return Controller(costs, {"ngram": 0.001, "model": seconds}, max_k=8, free=["ngram"]).length(
            "ngram", [0.7] * 3
        )[0]

    assert used(seconds=40.0)
    assert not used(seconds=0.5)


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


@pytest.mark.parametrize("has_own", [False, True])
def test_probes_that_are_right_are_followed_by_longer_ones_at_once(has_own: bool) -> None:
    """As far as they could pay by what passes over that drafter's tokens cost, whatever others cost."""
    passes, verified = (10.0, 20.0, 20.0, 26.0, 32.0, 38.0, 44.0, 50.0, 56.0), list[int]()
    controller = Controller(
        costs_of(*(passes if not has_own else (10.0, 500.0))), {NAME: 4.0}, max_k=8, reused=[NAME] if has_own else []
    )
    if own := controller.known[NAME].costs:
        for width, seconds in enumerate(passes, start=1):
            own.set(width, seconds)
    for _ in range(40):
        controller.begin(0)
        if controller.is_worth_asking(NAME):
            verified.append(sum(controller.includes(NAME, n, 1.0, 0.99) for n in range(8)))
            n = max(1, verified[-1])
            controller.learn(
                [said(0.99, n, n, is_used=verified[-1] > 0, seconds=4.0)], 1 + verified[-1], 4.0, 10.0, 14.0
            )
        else:
            controller.learn([], 1, 0.0, 10.0, 10.0)
    assert verified[:6] == [0, 0, 0, 2, 4, 8]


def test_a_new_drafter_is_probed_before_decoding_has_paid_for_it() -> None:
    probes = Probes()
    probes.seconds = 10.0

    def is_probed(seconds: float, is_new: bool) -> bool:
        known = Known(seconds, is_free=False)
        known.is_new = is_new
        return any(probes.is_due(known, [10.0, 12.0, 14.0, 16.0]) for _ in range(20))

    assert is_probed(1.0, is_new=True)
    assert not is_probed(1.0, is_new=False)
    assert not is_probed(50.0, is_new=True)  # not even all of it being right would pay


def test_a_drafter_is_valued_anew_when_what_it_meets_has_changed() -> None:
    controller = Controller(costs_of(10.0, 12.0, 14.0), {NAME: 1.0}, max_k=2)
    known = controller.known[NAME]
    for _ in range(50):
        known.acceptance.observe([0.95], 1, 1)
    known.policy = Policy(known.acceptance, [10.0, 12.0, 14.0], Price(1, 1, 0), 0.1)
    known.acceptance.bins[0][1] /= 4  # of a confidence that is never met
    assert not known.has_news
    for _ in range(10):
        known.acceptance.observe([0.95], 0, 1)
    assert known.has_news


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


def test_a_drafter_that_is_slower_than_its_numbers_say_is_barred() -> None:
    """Every token is accepted, but the steps take twice what their parts should: something that nobody measured."""
    controller, plain = Controller(costs_of(*PASSES), {NAME: 4.0}, max_k=8), 46.0
    wasted = 0.0
    for _ in range(400):
        controller.begin(0)
        if controller.is_worth_asking(NAME):
            controller.learn([said(0.9, 3, 3)], 4, 12.0, 82.0, 4 * plain * 1.5)
            wasted += 2 * plain
        else:
            controller.learn([], 1, 0.0, plain, plain)
    assert wasted < 40 * plain
    assert controller.reason().code == "cost"


def test_two_long_drafts_that_fail_do_not_bar_a_drafter_that_gains() -> None:
    """Drafts of twelve: one that fails loses five plain passes, one that is right gains as many."""
    known = Known(1.0, is_free=False)
    for lost in [-5.0] * 10 + [5.0] * 2 + [-5.0]:
        known.hold_to_account(lost, 1.0, 0.0)
        assert not known.is_barred
    for _ in range(20):
        known.hold_to_account(5.0, 1.0, 0.0)
    assert known.is_barred


def test_a_drafter_is_let_go_when_it_was_the_machine_that_became_slower() -> None:
    """Everything takes three times as long from one moment on: drafting still pays, though it is slower than plain
    decode was.
    """
    controller, asked = Controller(costs_of(*PASSES), {NAME: 4.0}, max_k=8), list[bool]()
    for i in range(400):
        slow = 3 if i > 50 else 1
        controller.begin(0)
        asked.append(controller.is_worth_asking(NAME))
        if asked[-1]:
            controller.costs.observe(4, 0, 82.0 * slow)
            controller.learn([said(0.9, 3, 3, seconds=4.0 * slow)], 4, 12.0 * slow, 82.0 * slow, 94.0 * slow)
        else:
            controller.costs.observe(1, 0, 46.0 * slow)
            controller.learn([], 1, 0.0, 46.0 * slow, 46.0 * slow)
    assert sum(asked[60:]) > 0.85 * len(asked[60:])


def test_a_free_drafter_is_asked_on_every_step_even_while_it_does_not_pay() -> None:
    controller = Controller(costs_of(*PASSES), {"ngram": 0.01}, max_k=8, free=["ngram"])
    for _ in range(100):
        controller.begin(0)
        assert controller.is_worth_asking("ngram")
        k, _ = controller.length("ngram", [0.9] * 4)
        controller.learn([Scored("ngram", [0.9] * 4, 1, 0, 0.01, 0.0, 0, k > 0)], 1, 0.01, 46.0, 46.0)
    assert k == 0


def test_a_confidence_that_was_declined_is_still_scored() -> None:
    """Else a belief that keeps tokens from being tried could never be found wrong."""
    known = Acceptance()
    for _ in range(50):
        known.observe([0.85], 0, 1)
    low = known.chance(0.85)
    for _ in range(300):
        known.observe([0.85], 1, 1)
    assert low < 0.2
    assert known.chance(0.85) > 0.8


def test_each_kind_of_text_has_its_own_acceptance() -> None:
    known = Acceptance()
    for _ in range(20):
        for kind, right in (("prose", 0), ("code", 1)):
            known.set_kind(kind)
            for _ in range(5):
                known.observe([0.85], right, 1)
    known.set_kind("prose")
    prose = known.chance(0.85)
    known.set_kind("code")
    assert known.chance(0.85) > prose + 0.2


def test_what_was_learned_is_taken_up_again() -> None:
    told = trace(0.1)
    learned = controller_for(told)
    adaptive(told, learned)
    fresh, warm = controller_for(told), controller_for(told)
    warm.restore(learned.state())
    assert warm.known[NAME].acceptance.chance(0.85) < fresh.known[NAME].acceptance.chance(0.85) - 0.2
    assert adaptive(told, warm) <= adaptive(told, fresh)


@pytest.mark.parametrize(
    "state",
    [{}, {NAME: None}, {NAME: {"bins": "?"}}, {NAME: {"bins": [[1, 2]], "moves": [], "starts": [], "total": [1, 1]}}],
)
def test_a_damaged_memory_is_no_memory(state: dict[str, object]) -> None:
    controller, fresh = controller_for(trace(0.5)), controller_for(trace(0.5))
    controller.restore(state)
    assert np.array_equal(controller.known[NAME].acceptance.chances, fresh.known[NAME].acceptance.chances)


def test_what_sampling_costs_is_charged_by_the_token() -> None:
    """Five tokens at once take five times the sampling of one: that is no advantage of plain decode, nor against it."""
    controller = Controller(costs_of(*PASSES), {NAME: 4.0}, max_k=8)
    for _ in range(200):
        controller.begin(0)
        controller.learn([said(0.9, 3, 3)], 4, 12.0, 82.0, 94.0 + 4 * 20.0)
    controller.begin(0)
    assert controller.plain_rate == pytest.approx(1 / (46.0 + 20.0), rel=0.01)


def test_plain_passes_are_made_in_a_row_now_and_then_so_that_their_cost_is_known() -> None:
    controller, asked, steady = Controller(costs_of(*PASSES), {NAME: 1.0}, max_k=8), [], []
    for _ in range(600):
        controller.begin(0)
        asked.append(controller.is_worth_asking(NAME))
        controller.learn([said(0.9, 3, 3)] if asked[-1] else [], 4 if asked[-1] else 1, 3.0, 82.0, 85.0)
        steady.append(controller.is_steady)
    first = asked.index(False)
    assert asked[first : first + 5] == [False] * 4 + [True]
    assert steady[first : first + 5] == [
        False,
        True,
        True,
        True,
        False,
    ]  # after a draft, a plain pass is not as in plain decode
    starts = [n for n in range(1, 600) if asked[n - 1] and not asked[n]]
    assert starts[0] <= 17
    assert all(after > 1.8 * before for before, after in pairwise(starts) if after < 256)
    assert asked.count(False) <= 20
    assert asked[300:].count(False) == 4


def test_what_plain_decode_cost_in_a_busy_moment_at_load_is_soon_found_wrong() -> None:
    """Plain passes seemed to take twice as long, and drafts that lose to gain."""
    costs = costs_of(92, *PASSES[1:])
    costs.doubt()
    controller = Controller(costs, {NAME: 4.0}, max_k=8)
    for _ in range(60):
        controller.begin(0)
        k = 3 if controller.is_worth_asking(NAME) else 0
        controller.learn([said(0.6, 1, 3)] if k else [], 2 if k else 1, 4.0 * k, PASSES[k], PASSES[k] + 4.0 * k)
        if k or controller.is_steady:
            controller.learn_pass(NAME if k else "none", 1 + k, 0, PASSES[k])
    assert controller.costs.seconds(1, 0) == pytest.approx(46, rel=0.25)


def test_the_less_drafts_gain_the_more_often_plain_passes_are_made() -> None:
    def plain_passes(draft: float) -> int:
        controller, asked = Controller(costs_of(*PASSES), {NAME: draft}, max_k=3), list[bool]()
        for _ in range(600):
            controller.begin(0)
            asked.append(controller.is_worth_asking(NAME))
            drafted = [said(0.9, 3, 3, seconds=draft)] if asked[-1] else []
            controller.learn(drafted, 4 if drafted else 1, draft, 82.0, 82.0 + draft)
        return asked[100:].count(False)

    assert plain_passes(3.0) <= 8
    assert 12 <= plain_passes(95.0) <= 100


def test_passes_that_are_wrongly_believed_to_be_dear_are_tried_again() -> None:
    """A drafter that is always right, beside passes over several rows that cost hardly more than one: once they seemed
    to cost ten times that.
    """
    controller, real, came, seconds = Controller(costs_of(46.0, 460.0), {NAME: 1.0}, max_k=1), (46.0, 48.0), 0, 0.0
    for n in range(3000):
        controller.begin(0)
        asked = controller.is_worth_asking(NAME)
        k = int(asked and controller.includes(NAME, 0, 0.99, 0.99))
        controller.learn(
            [said(0.99, 1, 1, is_used=k > 0, seconds=1.0)] if asked else [],
            1 + k,
            float(asked),
            real[k],
            real[k] + asked,
        )
        if k or controller.is_steady:
            controller.learn_pass(NAME if k else "none", 1 + k, 0, real[k])
        if n > 2500:
            came, seconds = came + 1 + k, seconds + real[k] + asked
    assert came / seconds > 1.5 / 46.0


def test_a_fixed_k_is_kept_whatever_it_costs() -> None:
    controller = Controller(costs_of(*PASSES), {NAME: 460.0}, max_k=8, fixed_k=3)
    assert controller.is_worth_asking(NAME)
    assert [controller.includes(NAME, depth, 0.0, 0.0) for depth in range(5)] == [True, True, True, False, False]


def test_passes_that_reuse_what_a_drafter_computed_have_costs_of_their_own() -> None:
    controller = Controller(costs_of(*PASSES), {"layerskip": 4.0, "model": 4.0}, max_k=8, reused=["layerskip"])
    controller.learn_pass("layerskip", 4, 0, 41.0)
    controller.scale(lambda width: width > 1, 2.0)
    assert controller.costs_of("layerskip", 4).seconds(4, 0) == pytest.approx(0.95 * 164)
    assert controller.costs.seconds(4, 0) == pytest.approx(0.985 * 164)  # it only drifts along
    assert controller.costs_of("layerskip", 1) is controller.costs_of("model", 4) is controller.costs


def test_a_machine_that_becomes_faster_does_so_for_plain_passes_too() -> None:
    controller = Controller(costs_of(*PASSES), {"layerskip": 4.0}, max_k=8, reused=["layerskip"])
    for _ in range(50):
        controller.learn_pass("layerskip", 4, 0, 41.0)
    controller.begin(0)
    assert controller.plain_rate > 1.1 / PASSES[0]


def test_the_reason_for_being_off_is_kept() -> None:
    assert Controller(costs_of(*PASSES), {}, 8, off=Reason("user", "drafters are switched off")).reason().code == "user"


def test_a_drafter_that_never_spoke_is_not_blamed() -> None:
    controller = Controller(costs_of(*PASSES), {"grammar": 0.01, "ngram": 0.01}, max_k=8, free=["grammar", "ngram"])
    assert controller.reason().text == "nothing to look up was found by the drafters grammar, ngram"


def test_acceptance_is_censored_by_the_window() -> None:
    known = Acceptance()
    for _ in range(100):
        known.observe([0.95, 0.5], 0, 1)
    assert known.chance(0.95) < 0.1
    # Never tried: only the offset speaks of it
    assert known.chance(0.5) == pytest.approx(Acceptance().chance(0.5), abs=0.4)
