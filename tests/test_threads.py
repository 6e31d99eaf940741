"""The number of threads under scripted times and busy cores; no clock but a scripted one, no threads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bench.instruments.clock import Clock
from runtime.core.clock import steadiest
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.threads import ThreadChoice, Threads, Watch
from runtime.speculative.control.tuning import TUNING


def decode(seconds: Callable[[int], float], steps: int, choice: ThreadChoice, costs: PassCosts) -> list[int]:
    """Passes of one row, learned from as the loop does; the numbers of threads they were made with."""
    used = []
    for _ in range(steps):
        used.append(choice.tried)
        took = seconds(choice.tried)
        change = choice.observe(1, took, costs.seconds(1, 0))
        if change == 1.0:
            costs.observe(1, 0, took)
        elif change is not None:
            costs.scale(lambda width: width == 1, change)
    return used


def measured(seconds: float) -> PassCosts:
    costs = PassCosts()
    costs.set(1, seconds)
    return costs


def test_a_busy_neighbour_makes_it_go_on_with_one_thread_soon() -> None:
    choice, costs = ThreadChoice([1, 2], 2), measured(1.0)
    decode(lambda n: {1: 1.6, 2: 1.0}[n], 50, choice, costs)
    assert choice.n == 2
    used = decode(lambda n: {1: 1.7, 2: 4.0}[n], 40, choice, costs)
    assert choice.n == 1
    assert used.count(2) < 30
    assert 1.5 < costs.seconds(1, 0) < 2.0  # what is expected has followed


def test_it_takes_both_again_when_the_neighbour_has_gone() -> None:
    choice, costs = ThreadChoice([1, 2], 1), measured(1.7)
    used = decode(lambda n: {1: 1.7, 2: 1.0}[n], 1200, choice, costs)
    assert choice.n == 2
    assert used.count(1) <= 150


def test_trials_are_rare_where_they_fail() -> None:
    choice, costs = ThreadChoice([1, 2], 1), measured(1.0)
    used = decode(lambda n: {1: 1.0, 2: 3.0}[n], 5000, choice, costs)
    assert 2 <= used.count(2) <= 12


def test_a_single_spike_changes_nothing() -> None:
    choice, costs, spikes = ThreadChoice([1, 2], 2), measured(1.0), iter([1.0] * 20 + [50.0] + [1.0] * 60)
    used = decode(lambda n: next(spikes) if n == 2 else 1.6, 81, choice, costs)
    assert choice.n == 2
    assert used.count(1) <= 4  # the trials that would have been made anyway


@pytest.mark.parametrize("first", [1, 2])
def test_where_single_passes_are_held_up_the_average_decides(first: int) -> None:
    """A quarter of those with two threads takes up to three times as long, as another process needs a core now and
    then.
    """
    chance = Random(1)

    def seconds(n: int) -> float:
        return 1.5 if n == 1 else 1.0 * (chance.uniform(1.5, 3.0) if chance.random() < 0.25 else 1.0)

    choice, costs = ThreadChoice([1, 2], first), measured(1.5)
    used = decode(seconds, 4000, choice, costs)
    assert used.count(2) > 0.8 * len(used)


def test_a_trial_of_more_threads_than_are_left_ends() -> None:
    choice, costs = ThreadChoice([1, 2], 1), measured(1.0)
    used = decode(lambda n: 1.0, 5 + TUNING.trial_block, choice, costs)
    assert used == [1] * 5 + [2] * TUNING.trial_block
    choice.limit(1)  # while passes are made with one again, to be compared
    assert not choice.is_on_trial
    assert set(decode(lambda n: 1.0, 50, choice, costs)) == {1}
    assert choice.n == 1


def test_with_one_number_there_is_nothing_to_try() -> None:
    choice, costs = ThreadChoice([2], 2), measured(1.0)
    assert set(decode(lambda n: 1.0, 3000, choice, costs)) == {2}


def test_passes_of_one_row_and_of_several_are_chosen_apart_and_applied_once() -> None:
    applied: list[tuple[int, ...]] = []
    threads = Threads([1, 2], 1, 2, 1, lambda *numbers: applied.append(numbers))
    threads.set()
    threads.set()
    assert applied == [(1, 2, 1)]
    assert threads.of(1) is not threads.of(2) is threads.of(5)


class Cores:
    """Two cores, of which others keep some busy; each look at them comes at a new moment."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.busy, self.asked, self.is_paused = clock, 0.0, 0, False
        self.watch = Watch(2, self)

    def busy_cores(self) -> float | None:
        self.asked += 1
        return None if self.is_paused else self.busy

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def look(self, busy: float) -> int:
        """What is free after a look that finds so many busy while passes are made."""
        self.busy, self.is_paused = busy, False
        self.clock.advance(TUNING.watch_seconds)
        self.watch.look()
        return self.watch.n_free


def test_a_core_that_others_take_is_left_at_once_and_taken_again_after_two_looks(clock: Clock) -> None:
    cores = Cores(clock)
    assert [cores.look(busy) for busy in (0.2, 0.7, 0.2, 0.9, 0.3, 0.1, 2.0)] == [2, 1, 1, 1, 1, 2, 1]


def test_what_others_take_matters_while_passes_are_made(clock: Clock) -> None:
    threads, _, cores = two_threads(clock)
    assert cores.is_paused
    threads.resume()
    assert not cores.is_paused
    threads.pause()
    assert cores.is_paused


def test_nobody_is_asked_between_two_looks(clock: Clock) -> None:
    cores = Cores(clock)  # nothing is known, so that all cores are free
    for _ in range(10):
        cores.watch.look()
        clock.advance(0.3 * TUNING.watch_seconds)
    assert (cores.asked, cores.watch.n_free) == (3, 2)


def two_threads(clock: Clock) -> tuple[Threads, list[tuple[int, ...]], Cores]:
    """Threads on two cores, and the numbers that were applied."""
    applied: list[tuple[int, ...]] = []
    cores = Cores(clock)
    return Threads([1, 2], 2, 2, 1, lambda *numbers: applied.append(numbers), cores.watch), applied, cores


def test_no_more_threads_than_free_cores_and_what_a_pass_takes_then_is_learned(clock: Clock) -> None:
    threads, applied, cores = two_threads(clock)
    threads.set()
    cores.look(1.0)
    threads.set()
    assert applied == [(2, 2, 1), (1, 1, 1)]
    assert [threads.observe(1, seconds, 1.0, 1.0) for seconds in (1.8, 9.0, 1.7)] == [None, None, 1.8]
    assert threads.observe(1, 1.8, 1.8, 1.0) == 1.0


def test_a_pass_that_is_held_up_for_want_of_cores_leaves_one_at_once(clock: Clock) -> None:
    threads, applied, _ = two_threads(clock)
    threads.set()
    threads.observe(1, 4.0, 1.0, 1.0)  # slow, but not by as much as a thread that waits for one without a core
    threads.observe(1, 40.0, 1.0, 2.0)  # held up by something else than cores
    threads.set()
    assert applied == [(2, 2, 1)]
    threads.observe(1, 40.0, 1.0, 1.2)
    threads.set()
    assert applied == [(2, 2, 1), (1, 1, 1)]


def test_who_holds_passes_up_again_and_again_is_given_the_core_for_longer(clock: Clock) -> None:
    cores = Cores(clock)

    def n_looks() -> int:
        """Looks that find nobody, until both cores are free again after a pass that was held up."""
        cores.watch.note_held_up(1.2)
        return next(n for n in range(1, 99) if cores.look(0.0) == 2)

    assert [n_looks() for _ in range(6)] == [2, 4, 8, 16, 32, 32]
    for _ in range(99):
        cores.look(0.0)
    assert n_looks() == 2


def test_where_others_compute_steps_are_timed_by_the_clock_that_they_disturb_least(clock: Clock) -> None:
    threads, _, cores = two_threads(clock)
    assert threads.clock is clock
    cores.look(1.0)
    assert threads.clock is steadiest()
