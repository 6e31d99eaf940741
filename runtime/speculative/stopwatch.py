"""What passes of the target take, measured and told to the controller, and which threads make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from runtime.speculative.control.controller import Controller
from runtime.speculative.control.threads import Threads

Result = TypeVar("Result")


class Took(NamedTuple):
    """What a pass took."""

    seconds: float
    n_cores: float  # that its threads had on average


class Stopwatch:
    """Times passes. Those that tried another number of threads say nothing about the usual one."""

    def __init__(self, controller: Controller, threads: Threads | None = None) -> None:
        self._controller, self._passes, self.threads = controller, controller.passes, threads
        self.is_far = False  # do workers make the passes?
        self._made = set[int]()  # widths of the passes that they made

    def resume(self) -> None:
        """A reply begins, after a pause perhaps."""
        if self.threads:
            self.threads.resume()

    def set_clock(self) -> None:
        """Has the controller measure by what is steadiest at the moment."""
        self._controller.clock = self.threads.clock if self.threads else time.perf_counter

    def time(self, make: Callable[[], Result]) -> tuple[Result, Took]:
        """Makes a pass."""
        if self.threads:
            self.threads.set()
        clock = self._controller.clock
        began, had = clock(), time.process_time()
        result = make()
        seconds = clock() - began
        return result, Took(seconds, (time.process_time() - had) / max(seconds, 1e-9))

    @property
    def is_on_trial(self) -> bool:
        """Is what the next passes of one row take needed, each of it?"""
        return self.threads is not None and self.threads.one.is_on_trial

    def learn_alone(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Takes in a pass of one reply. Soon after a draft, a plain one takes longer than in plain decode."""
        if drafters or self._controller.plain_passes.is_steady:
            self.learn(drafters, width, n_context, took)
        elif self._passes.is_left and not self.is_on_trial and not self.is_far:
            self._passes.costs.observe_after(n_context, took.seconds)

    def learn(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Takes in what a pass over so many tokens cost, of which those after the first are of `drafters`.

        The first pass of a width asks workers much that they are asked only once, and does not count.
        """
        if self.is_far and width not in self._made:
            self._made.add(width)
            return
        change: float | None = 1.0
        if self.threads:
            expected = self._passes.of(drafters, width).seconds(width, n_context)
            change = self.threads.observe(width, took.seconds, expected, took.n_cores)
        if change == 1.0:
            self._passes.learn(drafters, width, n_context, took.seconds)
        elif change is not None:
            self._passes.scale((lambda w: w == 1) if width == 1 else (lambda w: w > 1), change)
