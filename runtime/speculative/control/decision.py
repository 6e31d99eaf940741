"""Decisions on whether a drafter proposes in a step, with reasons; when drafters that are not expected to pay are
probed, and what probes may cost. Knows only counts and seconds.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from runtime.speculative.control.tuning import TUNING


class Decision(Enum):
    """Decision about a drafter in a step: `asks` is whether it proposes, `why` is the reason."""

    SKIP = "it would not pay, and probes have cost enough for now", False
    WAIT = "it would not pay, and is probed again later", False
    LOOK_UP = "it costs almost nothing, or the draft length is fixed", True
    USE = "it pays", True
    PROBE = "a probe measures again whether it pays", True
    MEASURE = "the pass is plain, to keep the time of plain passes known", False
    LATE = "another draft was found first", False
    CROWDED = "the pass had no room left for its draft, or it failed", False

    def __init__(self, why: str, asks: bool) -> None:
        self.why, self.asks = why, asks


# A module name takes a tenth of the time of a member lookup
SKIP, WAIT, LOOK_UP, USE, PROBE = list(Decision)[:5]


class Choice(NamedTuple):
    """The decision about a drafter in a step, and the length of its draft."""

    decision: Decision
    limit: int | None = None  # draft length that is fixed or set by a probe; None: the policy decides


class Exploration:
    """The seconds that probes may cost: a share of the decode time, and `credit` seconds at the beginning."""

    def __init__(self, credit: float = 0.0) -> None:
        self.decode_seconds, self._first_credit = 0.0, credit
        self.seconds = 0.0  # lost to probes

    @property
    def credit(self) -> float:
        """Seconds that probes may still cost; negative if they cost more than the budget."""
        return self._first_credit + TUNING.probe_share * self.decode_seconds - self.seconds

    def restore(self, credit: float) -> None:
        """Begin with the credit of an earlier start, limited to `most_credit`."""
        self._first_credit = min(max(-TUNING.most_credit, credit), TUNING.most_credit)

    def can_afford(self, seconds: float) -> bool:
        """Return whether the budget allows a probe that takes these seconds."""
        return seconds <= self.credit

    def n_until_affordable(self, seconds: float, plain_seconds: float) -> int:
        """Return the number of plain passes until the budget allows a probe that takes these seconds."""
        lacking = max(0.0, seconds - self.credit)
        return int(lacking / (TUNING.probe_share * max(plain_seconds, 1e-9)))


class Probes:
    """Probes of a drafter while it is parked: the interval between them doubles, and right ones follow one another."""

    def __init__(self) -> None:
        self.since = 0  # steps since it was parked or probed
        self.interval = TUNING.first_probe  # steps between two probes
        self.n_right = 0  # consecutive right probes

    @property
    def n_until(self) -> int:
        """Number of steps until the next probe."""
        return self.interval - self.since

    def begin(self) -> None:
        """Record a probe."""
        self.since, self.interval = 0, max(TUNING.first_probe, min(2 * self.interval, TUNING.last_probe))

    def learn(self, is_right: bool) -> None:
        """Record whether all known tokens of the probe were right; if so, the next step is another probe."""
        self.n_right = self.n_right + 1 if is_right else 0
        if is_right:
            self.interval = 0

    def reset(self) -> None:
        """Record that the drafter is not parked: the interval is short again."""
        self.since, self.interval, self.n_right = 0, TUNING.first_probe, 0
