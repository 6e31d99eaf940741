"""The results of trying a draft model, and whether it pays.

Plain data; knows no engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from runtime.engine.stats import Stats
from runtime.speculative.control.explain import Pass

GAIN = 1.03  # minimum speed relative to no draft model
FEW = 20  # verified draft tokens below which there are no rates and no ratio


@dataclass(frozen=True, slots=True)
class Trial:
    """The results of a draft model: speed relative to none, and statistics of its own draft tokens."""

    gain: float
    acceptance: float  # accepted share of its draft tokens
    per_second: float
    n_tried: int = 0  # its draft tokens that followed accepted ones only
    right: float = 0.0  # accepted share of these
    guess_seconds: float = 0.0  # time per draft token
    per_pass: float = 1.0  # tokens per pass, with its draft tokens
    costs: str = ""  # of a draft token, its verification and a plain token, in a clause

    @property
    def ratio(self) -> float:
        """The speed relative to none, as far as its accepted draft tokens explain it.

        It cannot exceed the tokens per pass; any speed above that is a lucky moment of the machine.
        """
        return min(self.gain, self.per_pass)

    @property
    def is_known(self) -> bool:
        """Whether enough of its draft tokens were verified for a ratio."""
        return self.n_tried >= FEW

    @property
    def pays(self) -> bool:
        """Whether the gain is large enough, known, and explained by accepted draft tokens."""
        return self.is_known and self.ratio >= GAIN


def trial_of(ratios: Sequence[float], rates: Sequence[float], own: Sequence[Pass], n_tokens: int) -> Trial:
    """Return the results of a trial.

    `ratios`: speeds of replies relative to no draft. `rates`: their tokens per second. `own`: passes with draft tokens
    of this drafter alone. `n_tokens`: tokens of all replies.
    """
    drafted = Stats(steps=[*own])
    n_accepted, n_tried = drafted.draft_n_accepted, sum(min(1 + each.n_accepted, each.n_drafted) for each in own)
    return Trial(
        median(ratios or [0.0]),
        drafted.acceptance_rate,
        median(rates or [0.0]),
        n_tried,
        n_accepted / max(1, n_tried),
        drafted.draft_seconds / max(1, drafted.draft_n),
        max(1, n_tokens) / max(1, n_tokens - n_accepted),
    )
