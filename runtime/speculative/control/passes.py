"""Times the target's passes, and estimates their cost in the current step, for a single sequence or a shared pass.

Knows times, counts and the threads that run passes; the controller decides what to draft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from runtime.core.clock import Clock, wall
from runtime.speculative.control.costs import PassCosts, PlainPasses
from runtime.speculative.control.joint_passes import JointPasses
from runtime.speculative.control.threads import Threads
from runtime.speculative.control.tuning import TUNING

Result = TypeVar("Result")


class Took(NamedTuple):
    """Measured time of a pass."""

    seconds: float
    n_cores: float  # average number of cores that its threads had


class Passes:
    """Timing and cost of passes.

    `costs` is the cost model for one sequence. `own` are those over the tokens of drafters that make passes cheaper,
    by name.
    """

    def __init__(self, costs: PassCosts, own: Mapping[str, PassCosts], plain: PlainPasses) -> None:
        self.costs, self._own, self._plain = costs, own, plain
        self.clock: Clock = wall  # the steadiest clock at the moment
        self.threads: Threads | None = None  # choice of thread numbers, if others can be tried
        self.is_far = False  # whether workers run the passes
        self._widths_run = set[int]()  # widths of passes that workers ran
        self._joint: JointPasses | None = None  # set once there are several sequences
        self._gain = 1.0  # best known speed of a single sequence relative to plain decode
        self._is_wide = False  # whether the last step had a draft
        self.is_left = False  # whether the last step was plain after one with a draft
        self._leaving = TUNING.leaving  # fraction of steps with a draft that a plain step follows
        self.begin(0, 1, 1)

    def begin(self, n_context: int, k: int, n_together: int, exact_rows: int | None = None) -> None:
        """Begin a step at this context length with up to `k` draft tokens, in a pass of `n_together` sequences."""
        self.n_context, self.n_together, self.exact_rows = n_context, n_together, exact_rows
        if n_together == 1:
            self.shares = self.costs.up_to(k + 1, n_context)  # [k + 1] measured seconds of a pass, by width - 1
            self.seconds = self.with_surcharges(self.shares)  # the same with surcharges, for the controller's choice
        else:
            self.shares = self.seconds = self.joint.shares(n_together, k, n_context)

    def with_surcharges(self, seconds: Sequence[float]) -> list[float]:
        """Return the seconds of passes, by width - 1, with surcharges: the extra time of a plain step after a draft,
        and a factor of TUNING.inexact_gain for inexact passes where exact ones are preferred.
        """
        after = self._leaving * self.costs.after if self.n_together == 1 else 0.0
        exact_rows = len(seconds) if self.exact_rows is None else max(1, self.exact_rows)
        exact = [each + after for each in seconds[1:exact_rows]]
        return [seconds[0], *exact, *[TUNING.inexact_gain * (each + after) for each in seconds[exact_rows:]]]

    @property
    def joint(self) -> JointPasses:
        """Cost model of passes that several sequences share."""
        if self._joint is None:
            self._joint = JointPasses(self.costs.of_batch(), self._gain)
        return self._joint

    @property
    def _tables(self) -> list[PassCosts]:
        return [self.costs, *self._own.values(), *([self._joint.costs] if self._joint else [])]

    def note_gain(self, gain: float) -> None:
        """Record the best known speed relative to plain decode, for the number of sequences in this step."""
        if self.n_together == 1:
            self._gain = gain
        if self._joint:
            self._joint.gains[self.n_together] = gain

    def note_width(self, is_wide: bool) -> None:
        """Record whether a step had a draft."""
        self.is_left = self._is_wide and not is_wide
        if self._is_wide:
            self._leaving += TUNING.time_weight * (self.is_left - self._leaving)
        self._is_wide = is_wide

    def set_clock(self) -> None:
        """Select the clock that is steadiest at the moment."""
        self.clock = self.threads.clock if self.threads else wall

    def time(self, make: Callable[[], Result]) -> tuple[Result, Took]:
        """Run a pass and measure it."""
        if self.threads:
            self.threads.set()
        clock = self.clock
        began, had = clock(), time.process_time()
        result = make()
        seconds = clock() - began
        return result, Took(seconds, (time.process_time() - had) / max(seconds, 1e-9))

    def divide(self, n_drafted: Sequence[int], n_context: int, n_read: int, took: Took) -> tuple[list[float], Took]:
        """Return each sequence's share of a pass in seconds, by its number of draft tokens, and the pass time without
        the `n_read` prompt tokens.
        """
        usual = [self.shares[n] for n in n_drafted]
        if len(n_drafted) > 1:
            self.joint.learn_drafts(n_drafted)
        if n_read:
            took = took._replace(seconds=min(took.seconds, sum(usual) or took.seconds))
        elif len(n_drafted) > 1:
            self.note((), len(n_drafted) + sum(n_drafted), n_context, took)
        if len(n_drafted) == 1:
            return [took.seconds], took
        return [took.seconds * own / sum(usual) for own in usual], took

    @property
    def is_on_trial(self) -> bool:
        """Whether each of the next one-row passes must be timed, for the choice of threads."""
        return self.threads is not None and self.threads.one.is_on_trial

    def note_alone(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Learn from a pass of one sequence. Soon after a draft, a plain pass takes longer than in plain decode."""
        if drafters or self._plain.is_steady:
            self.note(drafters, width, n_context, took)
        elif self.is_left and not self.is_on_trial and not self.is_far:
            self.costs.observe_after(n_context, took.seconds)

    def note(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Learn from a pass of this width; `drafters` proposed its draft tokens.

        A pass that tried another number of threads is not used for the cost model. With workers, the first pass of each
        width includes one-time requests to them and is ignored.
        """
        if self.is_far and width not in self._widths_run:
            self._widths_run.add(width)
            return
        change: float | None = 1.0
        if self.threads:
            expected = self.of(drafters, width).seconds(width, n_context)
            change = self.threads.observe(width, took.seconds, expected, took.n_cores)
        if change == 1.0:
            self.learn(drafters, width, n_context, took.seconds)
        elif change is not None:
            self.scale((lambda w: w == 1) if width == 1 else (lambda w: w > 1), change)

    def of(self, drafters: tuple[str, ...], width: int) -> PassCosts:
        """Return the cost model of passes over these drafters' tokens: a drafter's own only if it drafted alone."""
        if self.n_together > 1:
            return self.joint.costs
        return self._own.get(drafters[0], self.costs) if len(drafters) == 1 and width > 1 else self.costs

    def learn(self, drafters: tuple[str, ...], width: int, n_context: int, seconds: float) -> None:
        """Update the cost model of passes over these drafters' tokens; the other cost models drift with it."""
        own = self.of(drafters, width)
        # The table of shared passes starts with times of a single sequence, whose further rows are cheaper
        is_rare = 1 < self.n_together < width
        weight = TUNING.rare_weight if self._plain.is_forced else TUNING.time_weight
        change = own.observe(width, n_context, seconds, weight, is_rare)
        for costs in self._tables:
            if costs is not own:
                costs.drift(1 + change)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """Scale the times of passes of these widths in all cost models."""
        for costs in self._tables:
            costs.scale(widths, factor)
