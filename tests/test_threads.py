"""The number of threads under scripted times; no clock, no threads."""

from __future__ import annotations

from collections.abc import Callable

from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.threads import ThreadChoice, Threads


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
    assert used.count(1) <= 3  # the trials that would have been made anyway


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
