"""A decoding step of a sequence: its input, its proposals and their comparison with the generated tokens, its output.
Plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from runtime.core.draft import NO_DRAFT, Adapters, Draft, Tokens, common_start
from runtime.core.drafter import Drafter, no_end
from runtime.core.image_runs import text_only
from runtime.sampling.logits import Report, TokenLogprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.decision import Choice
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.explain import Why
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.policy import StoppingCriterion
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


@dataclass(slots=True)
class PromptReading:
    """Reading of a prompt by drafters. It may cost the reply, in seconds: `at_once`, and a `share` of the time in which
    it has been decoded, which is what drafts would have saved of that.
    """

    at_once: float = 0.0
    share: float = 0.0
    seconds: float = 0.0  # so far
    has_images: bool = False  # whether the prompt has images, of which most drafters see nothing
    context: Tokens = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # [n] prompt and reply by now

    def may_continue(self, decode_seconds: float) -> bool:
        """Return whether the next piece may be read, given the time of decoding, in which this reading is counted."""
        return self.seconds <= self.at_once + self.share * (decode_seconds - self.seconds)


class TextKind(NamedTuple):
    """What acceptance differs by: the kind of text, such as code, and the LoRA adapters of the passes."""

    form: str = ""
    adapters: Adapters = ()


NO_KIND = TextKind()


@dataclass(slots=True, eq=False)
class DraftingState:
    """Drafting state of one sequence, kept from step to step."""

    n_reply: int = 0  # expected number of tokens of the reply
    rule: Rule = COUPLED  # verification rule
    widths: Widths = Widths.EXACT  # permitted widths of its passes
    kind: TextKind = NO_KIND
    is_traced: bool = False  # whether each step records its reasons
    drafters: set[str] = field(default_factory=set)  # names of the drafters that take part
    n_idle: int = 0  # number of next steps that skip all drafters
    terms: Terms | None = None  # limits and costs of its last step
    left_out: Reason | None = None  # why a drafter does not take part, if it costs too much or there is no room
    has_begun: bool = False  # whether drafters have begun the sequence
    beginning: Iterator[None] | None = None  # while they read its prompt, a piece in each step
    reading: PromptReading = field(default_factory=PromptReading)

    def view(self, context: Tokens, drafter: Drafter) -> Tokens:
        """Return the part of `context` [n] that a drafter reads: its text, or all of it."""
        return text_only(context) if self.reading.has_images and not drafter.sees_images else context

    def readers(self, drafters: Iterable[Drafter]) -> list[Drafter]:
        """Return those of the drafters that can draft from what they see."""
        return [each for each in drafters if not (self.reading.has_images and each.reads_states)]

    def may_read(self, n_reply: int, decode_seconds: float) -> bool:
        """Return whether drafters may begin, or read the next piece of the prompt after the first of `n_reply` tokens,
        which took `decode_seconds`.
        """
        return self.beginning is None or (n_reply > 0 and self.reading.may_continue(decode_seconds))


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
    is_end: Callable[[int], bool] = no_end  # whether a token ends the reply


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


class Proposal(NamedTuple):
    """A drafter's proposal in a step, and the part of it that the target may verify."""

    name: str
    tokens: tuple[int, ...]  # a chain
    confidences: Sequence[float]  # of each token, and possibly of one more that the criterion rejected unnamed
    draft: Draft  # the part to verify; the rest is only scored
    first_seconds: float
    rest_seconds: float = 0.0
    n_rest: int = 0
    expected_gain: float = 0.0  # estimated tokens gained by verifying it

    @property
    def draft_confidences(self) -> tuple[float, ...]:
        """The confidences of the draft's tokens; empty for a tree."""
        return tuple(self.confidences[: len(self.draft)]) if self.draft.parents is None else ()

    def outcome(self, tokens: tuple[int, ...], is_used: bool) -> DraftOutcome:
        """Compare it with the generated tokens; proposed tokens beyond them cannot be compared. `is_used`: whether its
        draft was verified.
        """
        name, proposed, confidences, draft, first, rest, n_rest, gain = self
        n_comparable = min(len(proposed), len(tokens))
        is_right = proposed[:n_comparable] == tokens[:n_comparable]
        n_matched = n_comparable if is_right else common_start(proposed, tokens)
        n_used = len(draft.tokens) if is_used else 0
        return DraftOutcome(name, confidences, n_comparable, n_matched, first, rest, n_rest, n_used, gain)


@dataclass(slots=True)
class StepPlan:
    """A sequence's step before its pass: the proposals, and the choice about each drafter that takes part, by name."""

    number: int  # index of its input in the batch
    asked: StepInput
    terms: Terms
    room: int = 0  # most draft tokens
    is_idle: bool = False  # whether all drafters were skipped because none was useful lately
    seconds: float = 0.0  # time of the preparation
    proposals: list[Proposal] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)
    used: Proposal | None = None  # the proposal to verify
    draft: Draft = NO_DRAFT  # its draft; empty for a plain pass
    later: DeferredDraft | None = None  # a draft that is made together with those of other sequences

    def add(self, proposal: Proposal) -> None:
        """Add a proposal, which is verified if it has the highest expected gain of those with a draft."""
        self.proposals.append(proposal)
        if proposal.draft.tokens and (self.used is None or proposal.expected_gain > self.used.expected_gain):
            self.used, self.draft = proposal, proposal.draft

    @property
    def unasked(self) -> dict[str, str]:
        """Why drafters were skipped, by name."""
        return {name: choice.decision.why for name, choice in self.choices.items() if not choice.decision.asks}


class DeferredDraft(NamedTuple):
    """A draft for a sequence's step that is made together with those of other sequences."""

    step: StepPlan
    drafter: Drafter
    criterion: StoppingCriterion


def drafted(name: str, criterion: StoppingCriterion, draft: Draft, first: float, rest: float) -> Proposal:
    """Return the proposal of a model that took these seconds for its first token and for the others."""
    tokens = criterion.drafted(draft.tokens)
    return Proposal(name, tokens, criterion.confidences, draft, first, rest, criterion.n_rest)
