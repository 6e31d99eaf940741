"""Probes: asking a drafter that is not believed to pay. When, how closely, and how much of the time that may cost."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.speculative.control.drafter_state import DrafterState, DraftOutcome

SHARE = 0.005  # of decode time that probes and mistakes may cost
# Plain passes that probes of a new drafter may cost beyond that: it may be better than one expects
FIRST = 2
LEAST_K = 2  # tokens that are verified where a probe cannot be scored without, or is not to be
VERIFIED = 4  # one in so many probes is verified all the same: a belief in dear passes may be wrong
AFTER_RIGHT, ROW, COULD = 1, 0.0, 1
EARNED, MOST_EARNED = 0.05, 8
SURE = 3  # probes in a row that are right, after which ever more tokens are verified, where that could pay


class ProbeLedger:
    """What probes have cost, and which of them are verified."""

    def __init__(self) -> None:
        self.seconds = 0.0  # lost to probes
        self.earned = 0.0  # seconds that drafts have gained and probes may lose
        self._n_probes = 0

    def can_afford_newcomer(self, state: DrafterState, pass_seconds: Sequence[float], allowed: float) -> bool:
        """Is there time for a probe of a new drafter? Only of one that would pay if all of it were right.

        `pass_seconds` [max_k + 1] are the target's over its tokens, by width - 1.
        """
        return self.seconds <= allowed + FIRST * pass_seconds[0] and bool(paying_lengths(state, pass_seconds))

    def begin(self, state: DrafterState, scores_unused: bool, pass_seconds: Sequence[float]) -> int:
        """A probe begins; returns how many of its tokens are verified: none where scoring will do."""
        self._n_probes += 1
        state.note_probe()
        if state.n_right_probes >= SURE and (lengths := paying_lengths(state, pass_seconds)):
            return min(lengths[0] << (state.n_right_probes - SURE), lengths[-1])
        return 0 if scores_unused and (self._n_probes % VERIFIED or (AFTER_RIGHT and not state.n_right_probes)) else LEAST_K

    def earn(self, gained: float, most: float) -> None:
        """A share of what drafts have gained may be lost to probes."""
        self.earned = min(max(0.0, self.earned + EARNED * gained), max(most, 0.0))

    def learn(self, state: DrafterState, outcome: DraftOutcome, lost: float, could_pay: bool) -> None:
        """What a probe brought, and the seconds that it cost. One that was right is followed by another at once."""
        paid = min(self.earned, max(0.0, lost))
        self.earned -= paid
        self.seconds += max(0.0, lost) - paid
        if outcome.n_comparable and outcome.n_matched == outcome.n_comparable and (not COULD or could_pay):
            state.n_right_probes, state.probe_interval = state.n_right_probes + 1, 0
        else:
            state.n_right_probes = 0


def paying_lengths(state: DrafterState, pass_seconds: Sequence[float]) -> list[int]:
    """The draft lengths that would pay if all tokens were right."""
    return [
        k
        for k in range(LEAST_K, len(pass_seconds))
        if state.seconds_for(k) + pass_seconds[k] < (1 + k) * pass_seconds[0]
    ]
