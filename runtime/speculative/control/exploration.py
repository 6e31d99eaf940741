"""Probes of drafters that are not expected to pay: when they run, what they verify, and their time budget."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.speculative.control.drafter_state import DrafterState, DraftOutcome
from runtime.speculative.control.tuning import TUNING


class Exploration:
    """The time budget of probes, and the time that they have cost."""

    def __init__(self) -> None:
        self.decode_seconds = 0.0  # decode time; probes may cost a fraction of it
        self.earned = 0.0  # seconds gained by drafts that probes may cost in addition
        self.seconds = 0.0  # seconds lost to probes
        self._n_probes = 0

    @property
    def credit(self) -> float:
        """Seconds that probes may still cost; negative if they cost more than the budget."""
        return TUNING.probe_share * self.decode_seconds + self.earned - self.seconds

    def restore(self, credit: float) -> None:
        """Start with the credit of an earlier start, limited to `most_credit`."""
        most = TUNING.most_credit
        self.decode_seconds = min(max(0.0, credit), most) / TUNING.probe_share
        self.seconds = min(max(0.0, -credit), most)

    def can_afford(self, state: DrafterState) -> bool:
        """Return whether the budget allows a probe."""
        return state.first_seconds <= self.credit

    def can_afford_newcomer(self, state: DrafterState, pass_seconds: Sequence[float]) -> bool:
        """Return whether the budget allows a probe of a new drafter. It may exceed the budget slightly, but only for a
        drafter that would pay if all its tokens were accepted.

        `pass_seconds` [max_k + 1] are the seconds of the target's passes over its tokens, by width - 1.
        """
        is_possible = state.is_new and not state.is_disabled and self.credit >= -TUNING.first_probes * pass_seconds[0]
        return is_possible and bool(paying_lengths(state, pass_seconds))

    def earn(self, lost: float, plain_seconds: float) -> None:
        """Add the seconds that a step with a draft lost against plain decode; a negative loss increases the budget."""
        earned = self.earned - TUNING.earned_share * lost
        self.earned = min(max(0.0, earned), TUNING.most_earned * plain_seconds)

    def begin(self, state: DrafterState, can_score: bool, pass_seconds: Sequence[float]) -> int:
        """Begin a probe and return the number of its tokens to verify; 0 if scoring is enough."""
        self._n_probes += 1
        state.note_probe()
        if state.n_right_probes >= TUNING.sure_probes and (lengths := paying_lengths(state, pass_seconds)):
            return min(lengths[0] << (state.n_right_probes - TUNING.sure_probes), lengths[-1])
        is_scored = can_score and (self._n_probes % TUNING.verified_every > 0 or not state.n_right_probes)
        return 0 if is_scored else TUNING.least_k

    def learn(self, state: DrafterState, outcome: DraftOutcome, lost: float) -> None:
        """Learn from a probe and charge the seconds that it lost. A correct probe is followed by another in the next
        step.
        """
        lost = max(0.0, lost)
        paid = min(self.earned, lost)
        self.earned, self.seconds = self.earned - paid, self.seconds + lost - paid
        if 0 < outcome.n_comparable == outcome.n_matched:
            state.n_right_probes, state.probe_interval = state.n_right_probes + 1, 0
        else:
            state.n_right_probes = 0


def paying_lengths(state: DrafterState, pass_seconds: Sequence[float]) -> list[int]:
    """Return the draft lengths that would pay if all tokens were accepted."""
    return [
        k
        for k in range(TUNING.least_k, len(pass_seconds))
        if state.seconds_for(k) + pass_seconds[k] < (1 + k) * pass_seconds[0]
    ]
