"""What the target's passes cost in the step at hand, by itself or shared with other replies, and what is learned of
that.

Knows times and counts; what is drafted on the strength of them is the controller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from runtime.speculative.control.costs import PassCosts, PlainPasses
from runtime.speculative.control.joint_passes import JointPasses

LEARN = 0.1  # weight of a new time, or step
RARE = 0.25  # of a plain pass where there are few
LEAVING = 0.5  # how often a step with a draft is believed to be followed by a plain one, until it is known


class Passes:
    """`costs` are those of one reply; `own` those over the tokens of drafters that make passes cheaper, by name."""

    def __init__(self, costs: PassCosts, own: Mapping[str, PassCosts], plain: PlainPasses) -> None:
        self.costs, self._own, self._plain = costs, own, plain
        self._tables = [costs, *own.values()]
        self._joint: JointPasses | None = None  # once there are several replies
        self._gain = 1.0  # of the best way known for one reply alone, over plain decode
        self._is_wide = False  # had the last step a draft?
        self.is_left = False  # was it the plain one after such a one?
        self._leaving = LEAVING  # how often the step after such a one is plain
        self.begin(0, 1, 1)

    def begin(self, n_context: int, k: int, n_together: int) -> None:
        """A step begins at this context length, of up to `k` draft tokens, in a pass that so many replies share."""
        self.n_context, self.n_together = n_context, n_together
        if n_together == 1:
            self.shares = self.costs.up_to(k + 1, n_context)  # [k + 1] seconds of the reply's tokens, by width - 1
            # The same for the choice: with what a draft costs in the step after it, or others that wait
            self.seconds = self._with_what_follows(self.shares)
        else:
            self.shares = self.joint.shares(n_together, k, n_context)
            self.seconds = self.joint.worth(n_together, self.shares)

    def _with_what_follows(self, seconds: list[float]) -> list[float]:
        after = self.after
        return [seconds[0], *(each + after for each in seconds[1:])]

    @property
    def after(self) -> float:
        """Seconds that a draft costs in the step after it, where that is plain."""
        return self._leaving * self.costs.after if self.n_together == 1 else 0.0

    @property
    def joint(self) -> JointPasses:
        """Passes that several replies share."""
        if self._joint is None:
            self._joint = JointPasses(self.costs.of_company(), self._gain)
            self._tables.append(self._joint.costs)
        return self._joint

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
            self._leaving += LEARN * (self.is_left - self._leaving)
        self._is_wide = is_wide

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
        change = own.observe(width, n_context, seconds, RARE if self._plain.is_due else LEARN, is_rare)
        for costs in self._tables:
            if costs is not own:
                costs.drift(1 + change)

    def scale(self, widths: Callable[[int], bool], factor: float) -> None:
        """All passes of these widths take so much longer from now on."""
        for costs in self._tables:
            costs.scale(widths, factor)
