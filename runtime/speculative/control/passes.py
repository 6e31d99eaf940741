"""Times the target's passes, and estimates their cost in the current step, for a single sequence or a shared pass.

Knows times, counts and the threads that run passes; the controller decides what to draft.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from runtime.core.cores import Clock, wall
from runtime.core.drafter import NO_DRAFTER
from runtime.speculative.control.costs import PassCosts, PlainPasses
from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.joint_passes import JointPasses
from runtime.speculative.control.threads import Threads
from runtime.speculative.control.tuning import TUNING

Result = TypeVar("Result")


class PassTime(NamedTuple):
    """Measured time of a pass."""

    seconds: float
    n_cores: float  # average number of cores that its threads had


class Terms(NamedTuple):
    """What a sequence's step may do and costs; times are in seconds."""

    n_context: int
    n_together: int  # sequences that share the pass
    shares: Sequence[float]  # [most + 1] of a pass, by the sequence's draft tokens
    after: float  # expected extra time of a plain step after this one, if it has a draft
    exact_rows: int | None  # rows up to which a pass is exact, where exact passes are preferred
    drafters: Collection[str] | None  # names of those that take part; None: all
    overhead: float  # per token outside models
    is_plain: bool = False  # whether it must be plain, to keep the cost of plain passes known

    @property
    def seconds(self) -> list[float]:
        """`shares` with surcharges, for the choice."""
        return self.with_surcharges(self.shares)

    def with_surcharges(self, shares: Sequence[float]) -> list[float]:
        """Return the seconds of passes, by width - 1, with the time after a draft, and a factor of TUNING.inexact_gain
        for inexact passes where exact ones are preferred.
        """
        exact_rows = len(shares) if self.exact_rows is None else max(1, self.exact_rows)
        exact = [each + self.after for each in shares[1:exact_rows]]
        return [shares[0], *exact, *[TUNING.inexact_gain * (each + self.after) for each in shares[exact_rows:]]]

    @property
    def limits(self) -> tuple[int, int]:
        """The limits of a draft by a drafter with a policy: tokens, and rows of an exact pass."""
        n_rows = min(len(self.shares), TUNING.policy_depth + 1)
        return n_rows, n_rows if self.exact_rows is None else min(n_rows, self.exact_rows)

    @property
    def width_cost(self) -> float:
        """Average cost of a pass, relative to a plain one."""
        return sum(self.shares) / max(len(self.shares) * self.shares[0], 1e-9)

    @property
    def most(self) -> int:
        """Most draft tokens."""
        return len(self.shares) - 1

    @property
    def plain_rate(self) -> float:
        """Tokens per second without drafts."""
        return 1 / max(self.shares[0] + self.overhead, 1e-9)

    def share(self, state: DrafterState, k: int) -> float:
        """Return the expected seconds of a pass over `k` tokens of a drafter, without surcharges."""
        if state.costs is not None and self.n_together == 1:
            return state.costs.seconds(1 + k, self.n_context)
        return self.shares[min(k, self.most)]

    def pass_seconds_of(self, state: DrafterState) -> list[float]:
        """Return the seconds of passes over the tokens of a drafter with a policy, by width - 1, up to the policy's
        depth. A plain pass costs the same for all drafters.
        """
        shares = self.shares[: TUNING.policy_depth + 1]
        if state.costs is not None:
            shares = [shares[0], *state.costs.up_to(len(shares), self.n_context)[1:]]
        return self.with_surcharges(shares)


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
        self._is_wide = False  # whether the last step had a draft
        self.is_left = False  # whether the last step was plain after one with a draft
        self._leaving = TUNING.leaving  # fraction of steps with a draft that a plain step follows

    def shares(self, n_context: int, k: int, n_together: int) -> list[float]:
        """Return [k + 1] the seconds that a sequence pays for a pass of `n_together`, by its draft tokens."""
        if n_together == 1:
            return self.costs.up_to(k + 1, n_context)
        return self.joint.shares(n_together, k, n_context)

    @property
    def leaving_seconds(self) -> float:
        """Expected extra time of a plain step after one with a draft."""
        return self._leaving * self.costs.after

    @property
    def joint(self) -> JointPasses:
        """Cost model of passes that several sequences share."""
        if self._joint is None:
            self._joint = JointPasses(self.costs.of_batch())
        return self._joint

    @property
    def _tables(self) -> list[PassCosts]:
        return [self.costs, *self._own.values(), *([self._joint.costs] if self._joint else [])]

    def note_width(self, is_wide: bool) -> None:
        """Record whether a step had a draft."""
        self.is_left = self._is_wide and not is_wide
        if self._is_wide:
            self._leaving += TUNING.time_weight * (self.is_left - self._leaving)
        self._is_wide = is_wide

    def set_clock(self) -> None:
        """Select the clock that is steadiest at the moment."""
        self.clock = self.threads.clock if self.threads else wall

    def time(self, make: Callable[[], Result]) -> tuple[Result, PassTime]:
        """Run a pass and measure it."""
        if self.threads:
            self.threads.set()
        clock = self.clock
        began, had = clock(), time.process_time()
        result = make()
        seconds = clock() - began
        return result, PassTime(seconds, (time.process_time() - had) / max(seconds, 1e-9))

    def divide(
        self, usual: Sequence[float], n_drafted: Sequence[int], n_context: int, n_read: int, took: PassTime
    ) -> tuple[list[float], PassTime]:
        """Return each sequence's share of a pass in seconds, in proportion to its `usual` share, and the pass time
        without the `n_read` prompt tokens.
        """
        if len(n_drafted) > 1:
            self.joint.learn_drafts(n_drafted)
        if n_read:
            took = took._replace(seconds=min(took.seconds, sum(usual) or took.seconds))
        elif len(n_drafted) > 1:
            self.note(NO_DRAFTER, len(n_drafted) + sum(n_drafted), n_context, took, len(n_drafted))
        if len(n_drafted) == 1:
            return [took.seconds], took
        return [took.seconds * own / sum(usual) for own in usual], took

    @property
    def is_settling(self) -> bool:
        """Whether each of the next one-row passes must be timed, because their number of threads changed."""
        return self.threads is not None and self.threads.one.is_settling

    def note_alone(self, drafter: str, width: int, n_context: int, took: PassTime) -> None:
        """Learn from a pass of one sequence. Soon after a draft, a plain pass takes longer than in plain decode."""
        if width > 1 or self._plain.is_steady:
            self.note(drafter, width, n_context, took)
        elif self.is_left and not self.is_settling and not self.is_far:
            self.costs.observe_after(n_context, took.seconds)

    def note(self, drafter: str, width: int, n_context: int, took: PassTime, n_together: int = 1) -> None:
        """Learn from a pass of this width over `n_together` sequences; `drafter` proposed its draft tokens.

        The first passes with another number of threads rescale the cost model together. With workers, the first pass of
        each width includes one-time requests to them and is ignored.
        """
        if self.is_far and width not in self._widths_run:
            self._widths_run.add(width)
            return
        change: float | None = 1.0
        if self.threads:
            expected = self.of(drafter, n_together).seconds(width, n_context)
            change = self.threads.observe(width, took.seconds, expected, took.n_cores)
        if change == 1.0:
            self.learn(drafter, width, n_context, took.seconds, n_together)
        elif change is not None:
            self.scale((lambda w: w == 1) if width == 1 else (lambda w: w > 1), change)

    def of(self, drafter: str, n_together: int = 1) -> PassCosts:
        """Return the cost model of passes over this drafter's tokens."""
        return self.joint.costs if n_together > 1 else self._own.get(drafter, self.costs)

    def learn(self, drafter: str, width: int, n_context: int, seconds: float, n_together: int = 1) -> None:
        """Update the cost model of passes over this drafter's tokens; the other cost models drift with it."""
        own = self.of(drafter, n_together)
        # The table of shared passes starts with times of a single sequence, whose further rows are cheaper
        is_rare = 1 < n_together < width
        change = own.observe(width, n_context, seconds, is_rare)
        for costs in self._tables:
            if costs is not own:
                costs.drift(1 + change)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """Scale the times of passes of these widths in all cost models."""
        for costs in self._tables:
            costs.scale(widths, factor)
