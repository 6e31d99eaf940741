"""The number of threads under scripted times and busy cores; no clock but a scripted one, no threads."""

from __future__ import annotations

from bench.instruments.toy import Clock
from runtime.core.cores import steadiest
from runtime.speculative.control.threads import Threads, Watch
from runtime.speculative.control.tuning import TUNING


def test_passes_of_one_row_and_of_several_are_chosen_apart_and_applied_once() -> None:
    applied: list[tuple[int, ...]] = []
    threads = Threads(1, 2, 1, lambda *numbers: applied.append(numbers))
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
    return Threads(2, 2, 1, lambda *numbers: applied.append(numbers), cores.watch), applied, cores


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


def test_stalls_that_cost_less_than_fewer_threads_would_change_nothing(clock: Clock) -> None:
    threads, applied, _ = two_threads(clock)
    for _ in range(20):  # a tenth of the time is lost
        clock.advance(TUNING.watch_seconds)
        threads.set()
        threads.observe(1, 0.1 * TUNING.watch_seconds, 1e-3, 1.2)
    assert applied == [(2, 2, 1)]
    for _ in range(20):  # nearly all of it
        clock.advance(0.1 * TUNING.watch_seconds)
        threads.set()
        threads.observe(1, 0.1 * TUNING.watch_seconds, 1e-3, 1.2)
    assert applied == [(2, 2, 1), (1, 1, 1)]


def test_who_holds_passes_up_again_and_again_is_given_the_core_for_longer(clock: Clock) -> None:
    cores = Cores(clock)

    def n_looks() -> int:
        """Looks that find nobody, until both cores are free again after a pass that was held up."""
        cores.watch.note_stall(1.0, 1.2)
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
