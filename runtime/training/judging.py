"""Is a trained draft kept? Measured with the real controller: against none, and against the one that is used so far.

Knows engines and times, through pairing.py; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from runtime.tools.pairing import GAIN, Target, Trial, remembered
from runtime.training.verdict import why_not

ENOUGH = 20  # guesses compared in decoding, from which their share tells more than that of held-out texts
N_PROMPTS, LONGEST = 8, 300  # held-out ones, at most, and characters of one


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a draft did."""

    trial: Trial  # beside none
    beside: Trial | None = None  # the one that was kept before, where there is one
    before: Path | None = None  # that one

    @property
    def is_kept(self) -> bool:
        """Does it gain over both, by guesses of its own?"""
        return self.has_drafted and self.trial.gain >= GAIN and (self.beside is None or self.beside.gain >= GAIN)

    @property
    def has_drafted(self) -> bool:
        """Were there enough guesses? Where there were not, what replies gained was the machine's doing."""
        return self.trial.n_tried >= ENOUGH

    def why_not(self, guess: float, passes: Sequence[float], right: float) -> str:
        """Why it is not kept, in numbers: what was expected (`guess` seconds for one, `right` of the first ones on
        held-out texts) counts where too little was seen in decoding.
        """
        if self.trial.gain >= GAIN and not self.has_drafted:
            return (
                f"Replies were {self.trial.gain:.2f} times as fast with it, but not by its doing: it was sure enough "
                f"of only {self.trial.n_tried} guesses."
            )
        if self.trial.gain >= GAIN and self.beside is not None and self.before is not None:
            return (
                f"It is {self.trial.gain:.2f} times as fast as without it, but {self.beside.gain:.2f} times as fast as "
                f"with {self.before.name}, which was kept before and stays; {GAIN} is asked."
            )
        if self.has_drafted:
            guess, right, n = self.trial.guess_seconds, self.trial.right, self.trial.n_tried
            return why_not(guess, passes, right, n, self.trial.gain)
        return why_not(guess, passes, right, 0, self.trial.gain)


def judge(target: Target, draft: Path, prompts: Sequence[str]) -> Judgement:
    """Measures a draft. Raises SlipstreamError."""
    trial = beside_of(target, None, draft, prompts)
    before = remembered(target.pair.target) if trial.gain >= GAIN else None
    return Judgement(trial, beside_of(target, before, draft, prompts) if before else None, before)


def beside_of(target: Target, other: Path | None, draft: Path, prompts: Sequence[str]) -> Trial:
    """How it does beside another draft, or beside none."""
    with closing(target.open(other)) as engine:
        return target.try_out(engine, draft, [prompt[:LONGEST] for prompt in prompts[:N_PROMPTS]])
