"""Probes: asking a drafter that is not believed to pay. When, how closely, and how much of the time that may cost."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.speculative.control.drafter_state import DrafterState, DraftOutcome
from runtime.speculative.control.tuning import TUNING


class Exploration:
    """One ledger: seconds that probes may cost, and have cost."""

    def __init__(self) -> None:
        self.decode_seconds = 0.0  # a share of which probes may lose
        self.earned = 0.0  # seconds that drafts have gained and probes may lose
        self.seconds = 0.0  # lost to probes
        self._n_probes = 0

    @property
    def credit(self) -> float:
        """Seconds that probes may still lose; less than 0 where they have lost more."""
        return TUNING.probe_share * self.decode_seconds + self.earned - self.seconds

    def take_up(self, credit: float) -> None:
        """Begin with the credit of an earlier start, as far as it can be."""
        most = TUNING.most_credit
        self.decode_seconds = min(max(0.0, credit), most) / TUNING.probe_share
        self.seconds = min(max(0.0, -credit), most)

    def can_afford(self, state: DrafterState) -> bool:
        """Return whether there is time for a probe."""
        return state.first_seconds <= self.credit

    def can_afford_newcomer(self, state: DrafterState, pass_seconds: Sequence[float]) -> bool:
        """Return whether there is time for a probe of a new drafter, which may cost a little more, as it may be better
        than expected. Only of one that would pay if all of it were right.

        `pass_seconds` [max_k + 1] are the target's over its tokens, by width - 1.
        """
        is_possible = state.is_new and not state.is_disabled and self.credit >= -TUNING.first_probes * pass_seconds[0]
        return is_possible and bool(paying_lengths(state, pass_seconds))

    def earn(self, lost: float, plain_seconds: float) -> None:
        """Take in the seconds that a step with a draft lost against plain decode; of what it gained, probes may lose a
        part.
        """
        earned = self.earned - TUNING.earned_share * lost
        self.earned = min(max(0.0, earned), TUNING.most_earned * plain_seconds)

    def begin(self, state: DrafterState, can_score: bool, pass_seconds: Sequence[float]) -> int:
        """A probe begins; returns how many of its tokens are verified: none where scoring will do."""
        self._n_probes += 1
        state.note_probe()
        if state.n_right_probes >= TUNING.sure_probes and (lengths := paying_lengths(state, pass_seconds)):
            return min(lengths[0] << (state.n_right_probes - TUNING.sure_probes), lengths[-1])
        is_scored = can_score and (self._n_probes % TUNING.verified_every > 0 or not state.n_right_probes)
        return 0 if is_scored else TUNING.least_k

    def learn(self, state: DrafterState, outcome: DraftOutcome, lost: float) -> None:
        """What a probe brought, and the seconds that it cost. One that was right is followed by another at once."""
        lost = max(0.0, lost)
        paid = min(self.earned, lost)
        self.earned, self.seconds = self.earned - paid, self.seconds + lost - paid
        if 0 < outcome.n_comparable == outcome.n_matched:
            state.n_right_probes, state.probe_interval = state.n_right_probes + 1, 0
        else:
            state.n_right_probes = 0


def paying_lengths(state: DrafterState, pass_seconds: Sequence[float]) -> list[int]:
    """The draft lengths that would pay if all tokens were right."""
    return [
        k
        for k in range(TUNING.least_k, len(pass_seconds))
        if state.seconds_for(k) + pass_seconds[k] < (1 + k) * pass_seconds[0]
    ]
