"""Looking again at drafters that are not believed to pay: when, how closely, and how much of the time that may cost."""

from __future__ import annotations

from runtime.known import Known, Scored

SHARE = 0.005  # of decode time that probes and mistakes may cost
FIRST = 2  # plain passes that probes may cost beyond that while nothing was ever learned: a drafter may be better than one expects
LEAST_K = 2  # tokens that are verified where a probe cannot be scored without, or is not to be
VERIFIED = 4  # one in so many probes is verified all the same: a belief in dear passes may be wrong
SURE = 3  # probes in a row that are right, after which all are verified, of ever more tokens


class Probes:
    """The ledger of probes."""

    def __init__(self) -> None:
        self.decode_seconds, self.seconds = 0.0, 0.0  # in all; of them, lost to probes
        self._n, self._grant = 0, FIRST

    @property
    def allowed(self) -> float:
        """Seconds that may be lost."""
        return SHARE * self.decode_seconds

    def end_grant(self) -> None:
        """Something was learned at an earlier start."""
        self._grant = 0

    def is_due(self, known: Known, plain_seconds: float) -> bool:
        """Is it time for a probe of that drafter, and can it be afforded?"""
        grant = 0.0 if known.is_barred else self._grant * plain_seconds
        if self.seconds > self.allowed + grant or not known.is_probe_due():
            return False
        self._n += 1
        return True

    def length(self, known: Known, scores_unused: bool) -> int:
        """How many tokens of that drafter's probe are verified; none where scoring will do."""
        if known.n_right_probes >= SURE:
            return int(LEAST_K ** (known.n_right_probes - SURE + 1))
        return 0 if scores_unused and self._n % VERIFIED else LEAST_K

    def learn(self, known: Known, scored: Scored, lost: float) -> None:
        """What a probe said, and the seconds that it cost against plain decode. One that was right is followed by another at once."""
        self.seconds += max(0.0, lost)
        if scored.n_known and scored.n_right == scored.n_known:
            known.n_right_probes, known.wait = known.n_right_probes + 1, 0
        else:
            known.n_right_probes = 0
