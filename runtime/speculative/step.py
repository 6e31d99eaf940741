"""What goes into a step of decoding and what comes out of it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from runtime.core.draft import Tokens
from runtime.sampling.logits import Report, TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.explain import Why
from runtime.speculative.control.reasons import Reason
from runtime.speculative.verify import COUPLED, Rule


class Widths(Enum):
    """How wide a sequence's passes may be, where the rounding of a pass depends on its width."""

    EXACT = auto()  # only widths that round as plain decode does
    PREFER_EXACT = auto()  # others too, where they are expected to gain enough
    ANY = auto()


def widths_of(sampler: Sampler, always_exact: bool = False) -> Widths:
    """Return the widths for a reply: a seed asks for the very same text. Temperature 0 without one does not, unless
    the settings say that it does (`always_exact`); where tokens are drawn, rounding changes nothing that can be seen.
    """
    if sampler.sampling.seed is not None or (sampler.is_greedy and always_exact):
        return Widths.EXACT
    return Widths.PREFER_EXACT if sampler.is_greedy else Widths.ANY


@dataclass(slots=True, eq=False)
class DraftingState:
    """What is kept of one sequence from step to step, for drafting."""

    n_reply: int = 0  # tokens that the reply is expected to have
    rule: Rule = COUPLED  # of acceptance
    widths: Widths = Widths.EXACT  # of its passes
    kind: str = ""  # of the text, because acceptance differs by kind
    is_traced: bool = False  # does each step say why it was as it was?
    drafters: set[str] = field(default_factory=set)  # that draft for it
    n_idle: int = 0  # next steps in which no drafter need be asked
    left_out: Reason | None = None  # why a drafter does not draft for it, if that would cost too much


class StepInput(NamedTuple):
    """A sequence whose next tokens are decoded: one to `most` after `context` [n], whose last `position` tokens are the
    reply's. The pass also reads the `n_unread` tokens before the last; then it has no draft.
    """

    state: DraftingState
    context: Tokens
    sampler: Sampler
    position: int
    most: int
    report: Report | None = None  # returns log probabilities, where they were asked for
    n_unread: int = 0


class Step(NamedTuple):
    """The tokens that one target pass brought a sequence."""

    tokens: tuple[int, ...]
    n_accepted: int  # of them from the draft; the last token is always the target's own
    n_drafted: int
    drafters: tuple[str, ...]  # whose proposals were verified: none in plain decode, several in a tree
    draft_seconds: float
    verify_seconds: float  # the target's pass
    seconds: float  # the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for
    n_together: int = 1  # sequences that decoded in the pass
    why: Why | None = None  # where the sequence is traced
