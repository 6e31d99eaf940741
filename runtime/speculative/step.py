"""Input and output of a decoding step. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from runtime.core.draft import Tokens
from runtime.sampling.logits import Report, TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.explain import Why
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.reasons import Reason
from runtime.speculative.verify import COUPLED, Rule


class Widths(Enum):
    """The permitted widths of a sequence's passes, where the rounding of a pass depends on its width."""

    EXACT = auto()  # only widths that round as plain decode does
    PREFER_EXACT = auto()  # others too, if their expected gain is large enough
    ANY = auto()


def widths_of(sampler: Sampler, always_exact: bool = False) -> Widths:
    """Return the permitted widths for a reply. A seed requires exactly the same text, and so does temperature 0 with
    `always_exact`. Where tokens are sampled without a seed, rounding has no visible effect.
    """
    if sampler.sampling.seed is not None or (sampler.is_greedy and always_exact):
        return Widths.EXACT
    return Widths.PREFER_EXACT if sampler.is_greedy else Widths.ANY


@dataclass(slots=True, eq=False)
class DraftingState:
    """Drafting state of one sequence, kept from step to step."""

    n_reply: int = 0  # expected number of tokens of the reply
    rule: Rule = COUPLED  # verification rule
    widths: Widths = Widths.EXACT  # permitted widths of its passes
    kind: str = ""  # kind of text, because acceptance differs by kind
    is_traced: bool = False  # whether each step records its reasons
    drafters: set[str] = field(default_factory=set)  # names of the drafters that take part
    n_idle: int = 0  # number of next steps that skip all drafters
    terms: Terms | None = None  # limits and costs of its last step
    left_out: Reason | None = None  # why a drafter does not take part, if it costs too much or there is no room


class StepInput(NamedTuple):
    """A sequence whose next tokens are decoded: one to `most` tokens after `context` [n].

    The last `position` tokens of `context` are the reply so far. The pass also reads the `n_unread` tokens before the
    last one; it has no draft then.
    """

    state: DraftingState
    context: Tokens
    sampler: Sampler
    position: int
    most: int
    report: Report | None = None  # returns log probabilities, if requested
    n_unread: int = 0


class Step(NamedTuple):
    """Result of a step for one sequence: the new tokens and how they were generated."""

    tokens: tuple[int, ...]
    n_accepted: int  # number of accepted draft tokens; the last token is always the target's own
    n_drafted: int
    drafter: str  # whose proposal was verified; "none" in plain decode
    draft_seconds: float
    verify_seconds: float  # time of the target's pass
    seconds: float  # time of the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, if requested
    n_together: int = 1  # number of sequences that decoded in the pass
    why: Why | None = None  # trace entry, if the sequence is traced
