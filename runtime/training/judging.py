"""Is a trained draft kept? Measured with the real controller: against none, and against the one that is used so far.

Knows engines and times, through pairing.py; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from runtime.tools.paired import remembered
from runtime.tools.pairing import GAIN, Target, Trial
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
        """Does it pay beside both?"""
        return self.trial.pays and (self.beside is None or self.beside.pays)

    def why_not(self, guess: float, passes: Sequence[float], right: float) -> str:
        """Why it is not kept, in numbers: what was expected (`guess` seconds for one, `right` of the first ones on
        held-out texts) counts where too little was seen in decoding.
        """
        if self.trial.gain >= GAIN and not self.trial.pays:
            return (
                f"Replies were {self.trial.gain:.2f} times as fast with it, but not by its doing: with its guesses a "
                f"pass made {self.trial.per_pass:.2f} tokens."
            )
        if self.trial.gain >= GAIN and self.beside is not None and self.before is not None:
            return (
                f"It is {self.trial.gain:.2f} times as fast as without it, but {self.beside.gain:.2f} times as fast as "
                f"with {self.before.name}, which was kept before and stays; {GAIN} is asked."
            )
        if self.trial.n_tried >= ENOUGH:
            guess, right, n = self.trial.guess_seconds, self.trial.right, self.trial.n_tried
            return why_not(guess, passes, right, n, self.trial.gain)
        return why_not(guess, passes, right, 0, self.trial.gain)


def judge(target: Target, draft: Path, prompts: Sequence[str]) -> Judgement:
    """Measures a draft. Raises SlipstreamError."""
    trial = beside_of(target, None, draft, prompts)
    before = remembered(target.pair.target) if trial.pays else None
    return Judgement(trial, beside_of(target, before, draft, prompts) if before else None, before)


def beside_of(target: Target, other: Path | None, draft: Path, prompts: Sequence[str]) -> Trial:
    """How it does beside another draft, or beside none."""
    with closing(target.open(other)) as engine:
        return target.try_out(engine, draft, [prompt[:LONGEST] for prompt in prompts[:N_PROMPTS]])
