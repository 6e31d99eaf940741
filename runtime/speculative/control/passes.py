"""What the target's passes take: timed, and what they cost in the step at hand, by itself or shared with other replies.

Knows times, counts and which threads make them; what is drafted on the strength of that is the controller's.
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
    """What a pass took."""

    seconds: float
    n_cores: float  # that its threads had on average


class Passes:
    """`costs` are those of one reply; `own` those over the tokens of drafters that make passes cheaper, by name."""

    def __init__(self, costs: PassCosts, own: Mapping[str, PassCosts], plain: PlainPasses) -> None:
        self.costs, self._own, self._plain = costs, own, plain
        self.clock: Clock = wall  # what is steadiest at the moment
        self.threads: Threads | None = None  # that make them, where others can be tried
        self.is_far = False  # do workers make them?
        self._made = set[int]()  # widths of those that workers made
        self._joint: JointPasses | None = None  # once there are several replies
        self._gain = 1.0  # of the best way known for one reply alone, over plain decode
        self._is_wide = False  # had the last step a draft?
        self.is_left = False  # was it the plain one after such a one?
        self._leaving = TUNING.leaving  # how often the step after such a one is plain
        self.begin(0, 1, 1)

    def begin(self, n_context: int, k: int, n_together: int, exact_rows: int | None = None) -> None:
        """A step begins at this context length, of up to `k` draft tokens, in a pass that so many replies share."""
        self.n_context, self.n_together, self.exact_rows = n_context, n_together, exact_rows
        if n_together == 1:
            self.shares = self.costs.up_to(k + 1, n_context)  # [k + 1] seconds of the reply's tokens, by width - 1
            self.seconds = self.with_surcharges(self.shares)  # the same for the choice
        else:
            self.shares = self.seconds = self.joint.shares(n_together, k, n_context)

    def with_surcharges(self, seconds: Sequence[float]) -> list[float]:
        """Return the seconds of passes, by width - 1, with what a draft costs in the step after it where that is
        plain. Where exact passes are preferred, others must be faster by TUNING.inexact_gain.
        """
        after = self._leaving * self.costs.after if self.n_together == 1 else 0.0
        exact_rows = len(seconds) if self.exact_rows is None else max(1, self.exact_rows)
        exact = [each + after for each in seconds[1:exact_rows]]
        return [seconds[0], *exact, *[TUNING.inexact_gain * (each + after) for each in seconds[exact_rows:]]]

    @property
    def joint(self) -> JointPasses:
        """Passes that several replies share."""
        if self._joint is None:
            self._joint = JointPasses(self.costs.of_company(), self._gain)
        return self._joint

    @property
    def _tables(self) -> list[PassCosts]:
        return [self.costs, *self._own.values(), *([self._joint.costs] if self._joint else [])]

    def note_gain(self, gain: float) -> None:
        """What the best way known makes of plain decode, where so many replies share a pass as in this step."""
        if self.n_together == 1:
            self._gain = gain
        if self._joint:
            self._joint.gains[self.n_together] = gain

    def note_width(self, is_wide: bool) -> None:
        """A step had a draft, or none."""
        self.is_left = self._is_wide and not is_wide
        if self._is_wide:
            self._leaving += TUNING.time_weight * (self.is_left - self._leaving)
        self._is_wide = is_wide

    def set_clock(self) -> None:
        """Passes are timed by what is steadiest at the moment."""
        self.clock = self.threads.clock if self.threads else wall

    def time(self, make: Callable[[], Result]) -> tuple[Result, Took]:
        """Makes a pass."""
        if self.threads:
            self.threads.set()
        clock = self.clock
        began, had = clock(), time.process_time()
        result = make()
        seconds = clock() - began
        return result, Took(seconds, (time.process_time() - had) / max(seconds, 1e-9))

    def divide(self, n_drafted: Sequence[int], n_context: int, n_read: int, took: Took) -> tuple[list[float], Took]:
        """Returns the seconds that each of several sequences, with so many draft tokens, pays of a pass that they
        shared, and what it took without the `n_read` tokens of prompts that it read.
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
        """Is what the next passes of one row take needed, each of it?"""
        return self.threads is not None and self.threads.one.is_on_trial

    def note_alone(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Takes in a pass of one reply. Soon after a draft, a plain one takes longer than in plain decode."""
        if drafters or self._plain.is_steady:
            self.note(drafters, width, n_context, took)
        elif self.is_left and not self.is_on_trial and not self.is_far:
            self.costs.observe_after(n_context, took.seconds)

    def note(self, drafters: tuple[str, ...], width: int, n_context: int, took: Took) -> None:
        """Takes in a pass over so many tokens, of which those after the first are of `drafters`.

        One that tried another number of threads says nothing about the usual one. The first of a width asks workers
        much that they are asked only once, and does not count.
        """
        if self.is_far and width not in self._made:
            self._made.add(width)
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
        """The table that holds what passes over these drafters' tokens cost: one's own only where it is alone."""
        if self.n_together > 1:
            return self.joint.costs
        return self._own.get(drafters[0], self.costs) if len(drafters) == 1 and width > 1 else self.costs

    def learn(self, drafters: tuple[str, ...], width: int, n_context: int, seconds: float) -> None:
        """Takes in what a pass over these drafters' tokens took; the tables of others drift along."""
        own = self.of(drafters, width)
        # Passes that replies share were measured as those of one, whose further rows are cheaper
        is_rare = 1 < self.n_together < width
        weight = TUNING.rare_weight if self._plain.is_due else TUNING.time_weight
        change = own.observe(width, n_context, seconds, weight, is_rare)
        for costs in self._tables:
            if costs is not own:
                costs.drift(1 + change)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """All passes of these widths take so much longer from now on."""
        for costs in self._tables:
            costs.scale(widths, factor)
