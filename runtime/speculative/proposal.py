"""The proposals for a step of a sequence, and their comparison with the generated tokens. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.core.draft import NO_DRAFT, Draft, common_start
from runtime.core.drafter import Drafter
from runtime.speculative.control.decision import Choice
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.policy import StoppingCriterion
from runtime.speculative.step import StepInput


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
