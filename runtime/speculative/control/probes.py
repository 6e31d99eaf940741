"""Looking again at drafters that are not believed to pay: when, how closely, and how much of the time that may cost."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.speculative.control.drafter_state import Known, Scored

SHARE = 0.005  # of decode time that probes and mistakes may cost
FIRST = 2  # plain passes that probes of a new drafter may cost beyond that: it may be better than one expects
LEAST_K = 2  # tokens that are verified where a probe cannot be scored without, or is not to be
VERIFIED = 4  # one in so many probes is verified all the same: a belief in dear passes may be wrong
SURE = 3  # probes in a row that are right, after which ever more tokens are verified, where that could pay


class Probes:
    """The ledger of probes."""

    def __init__(self) -> None:
        self.decode_seconds, self.seconds = 0.0, 0.0  # in all; of them, lost to probes
        self._n = 0

    @property
    def allowed(self) -> float:
        """Seconds that may be lost."""
        return SHARE * self.decode_seconds

    def is_due(self, known: Known, passes: Sequence[float]) -> bool:
        """Is it time for a probe of that drafter, and can it be afforded? `passes` [max_k + 1] are its seconds by width
        - 1.
        """
        grant = FIRST * passes[0] if known.is_new and not known.is_barred and worthy(known, passes) else 0.0
        if self.seconds > self.allowed + grant or not known.is_probe_due():
            return False
        self._n += 1
        return True

    def length(self, known: Known, scores_unused: bool, passes: Sequence[float]) -> int:
        """How many tokens of that drafter's probe are verified; none where scoring will do."""
        if known.n_right_probes >= SURE and (lengths := worthy(known, passes)):
            return min(lengths[0] << (known.n_right_probes - SURE), lengths[-1])
        return 0 if scores_unused and self._n % VERIFIED else LEAST_K

    def learn(self, known: Known, scored: Scored, lost: float) -> None:
        """What a probe said, and the seconds that it cost against plain decode.

        One that was right is followed by another at once.
        """
        self.seconds += max(0.0, lost)
        if scored.n_known and scored.n_right == scored.n_known:
            known.n_right_probes, known.wait = known.n_right_probes + 1, 0
        else:
            known.n_right_probes = 0


def worthy(known: Known, passes: Sequence[float]) -> list[int]:
    """The draft lengths that would pay if all tokens were right."""
    return [k for k in range(LEAST_K, len(passes)) if known.seconds_for(k) + passes[k] < (1 + k) * passes[0]]
