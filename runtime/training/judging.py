"""Decides whether a trained draft is kept, by the real controller: compared with none, and with the current one.

Knows engines and times, through pairing.py; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from runtime.tools.paired import GAIN, Trial, remembered
from runtime.tools.pairing import Target
from runtime.training.verdict import why_not

N_PROMPTS, PROMPT_CHARACTERS = 8, 300  # held-out prompts, at most; and characters of one


@dataclass(frozen=True, slots=True)
class Judgement:
    """The results of a draft."""

    trial: Trial  # compared with no draft
    versus_current: Trial | None = None  # compared with the draft that was kept before, if there is one
    before: Path | None = None  # the path of that one

    @property
    def is_kept(self) -> bool:
        """Whether it pays compared with both."""
        return self.trial.pays and (self.versus_current is None or self.versus_current.pays)

    def why_not(self, guess: float, passes: Sequence[float], right: float) -> str:
        """Return the reason why it is not kept, in numbers.

        The expected values (`guess` seconds per draft token, share `right` of the first ones on held-out texts) are
        used if too few draft tokens were verified in decoding.
        """
        if self.trial.gain >= GAIN and not self.trial.is_known:
            return f"Only {self.trial.n_tried} of its draft tokens were verified, too few to tell whether it pays."
        if self.trial.gain >= GAIN and not self.trial.pays:
            return (
                f"Replies were {self.trial.gain:.2f} times as fast with it, but not because of it: with its drafts a "
                f"pass yielded {self.trial.per_pass:.2f} tokens."
            )
        if self.trial.gain >= GAIN and self.versus_current is not None and self.before is not None:
            return (
                f"It is {self.trial.gain:.2f} times as fast as without it, but {self.versus_current.gain:.2f} times as "
                f"fast as with {self.before.name}, which was kept before and stays; {GAIN} is required."
            )
        if self.trial.is_known:
            guess, right, n = self.trial.guess_seconds, self.trial.right, self.trial.n_tried
            return why_not(guess, passes, right, n, self.trial.gain)
        return why_not(guess, passes, right, 0, self.trial.gain)


def judge(target: Target, draft: Path, prompts: Sequence[str]) -> Judgement:
    """Measure a draft. Raises SlipstreamError."""
    trial = compare(target, None, draft, prompts)
    before = remembered(target.pair.target) if trial.pays else None
    return Judgement(trial, compare(target, before, draft, prompts) if before else None, before)


def compare(target: Target, other: Path | None, draft: Path, prompts: Sequence[str]) -> Trial:
    """Measure the draft compared with another one, or with none."""
    with closing(target.open(other)) as engine:
        return target.try_out(engine, draft, [prompt[:PROMPT_CHARACTERS] for prompt in prompts[:N_PROMPTS]])
