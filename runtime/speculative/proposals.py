"""Collects proposals from drafters, as the controller decides, and compares them with the generated tokens.

Knows drafters, the controller and times; knows no target and no verification rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from runtime.core.draft import NO_DRAFT, Draft, Logits, Path, common_start
from runtime.core.drafter import CONTINUE, UNKNOWN_TOKEN, Answer, Budget, Drafter, Drafting, Pick
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.policy import StoppingCriterion
from runtime.speculative.control.threads import Threads
from runtime.speculative.lineup import Lineup
from runtime.speculative.step import StepInput


class Proposal(NamedTuple):
    """A drafter's proposal in a step, and the part of it that the target verifies."""

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


class Asked(NamedTuple):
    """One sequence's share of a draft made for several sequences."""

    drafter: Drafter
    step: StepInput
    criterion: StoppingCriterion
    room: int  # most draft tokens


@dataclass(slots=True)
class Proposed:
    """The proposals for a sequence's step, and the choice about each drafter that takes part, by name."""

    proposals: list[Proposal] = field(default_factory=list)
    choices: dict[str, Choice] = field(default_factory=dict)
    later: Asked | None = None  # a draft that is made together with those of other sequences

    @property
    def used(self) -> Proposal | None:
        """The proposal that is verified."""
        for proposal in self.proposals:
            if proposal.draft.tokens:
                return proposal
        return None

    def keep_best(self) -> None:
        """Keep only the draft of the proposal with the highest expected gain; the others are just scored."""
        if len(self.proposals) > 1:
            best = max(self.proposals, key=lambda each: (bool(each.draft.tokens), each.expected_gain))
            self.proposals = [each if each is best else each._replace(draft=NO_DRAFT) for each in self.proposals]

    @property
    def draft(self) -> Draft:
        """The draft to verify; empty for a plain pass."""
        used = self.used
        return used.draft if used else NO_DRAFT

    @property
    def unasked(self) -> dict[str, str]:
        """Why drafters were skipped, by name."""
        return {name: choice.decision.why for name, choice in self.choices.items() if not choice.decision.asks}


class Proposer:
    """Runs drafters, those with the highest expected gain first; one that fails is dropped."""

    def __init__(self, controller: Controller, lineup: Lineup, threads: Threads | None) -> None:
        self.controller, self.lineup, self.threads = controller, lineup, threads

    def propose(self, step: StepInput, terms: Terms, room: int) -> Proposed:
        """Return the proposals of the drafters that take part in a reply.

        Lookups run first. Only one proposal is verified; others are only scored. A draft has at most `room` tokens.
        Where several sequences share the step, the draft of a drafter that shares passes is deferred.
        """
        found, states, controller = Proposed(), self.controller.states, self.controller
        taking_part = [drafter for drafter in self.lineup.drafters if drafter.name in step.state.drafters]
        in_order = sorted(taking_part, key=lambda drafter: -states[drafter.name].expected_gain)
        for drafter in in_order:
            if drafter.is_model_free:
                choice = found.choices[drafter.name] = controller.choose(terms, drafter.name)
                if choice.decision.asks:
                    with self._guarded(drafter):
                        found.proposals.append(self._look_up(drafter, step, terms, room))
        found.keep_best()
        for drafter in in_order:
            if drafter.is_model_free:
                continue
            if found.used or found.later:
                found.choices[drafter.name] = Choice(Decision.LATE)
                continue
            can_score = step.state.rule.can_score_rejected
            choice = found.choices[drafter.name] = controller.choose(terms, drafter.name, can_score)
            if choice.decision.asks and terms.n_together > 1 and drafter.shares_passes:
                found.later = Asked(drafter, step, controller.criterion(drafter.name, choice), room)
            elif choice.decision.asks:
                with self._guarded(drafter):
                    found.proposals.append(self._draft(drafter, choice, step, room))
        return found

    @contextmanager
    def _guarded(self, drafter: Drafter) -> Iterator[None]:
        """End the block without a proposal where the drafter fails, which drops it, or has no token to propose."""
        try:
            yield
        except SettingsError:
            pass  # caused by the grammar or a bias, not by the drafter; the target raises it too if it gets there
        except SlipstreamError as error:
            self.lineup.drop(drafter, error)

    def propose_together(self, asked: Sequence[Asked], room: int) -> list[Proposal]:
        """Return a drafter's proposals for several sequences, drafted in shared passes with one token of each.

        They have at most `room` tokens in total. Empty if the drafter fails.
        """
        clock = self.controller.passes.clock
        began, drafter = clock(), asked[0].drafter
        makers = list[Drafting]()
        for n_left, each in zip(range(len(asked), 0, -1), asked, strict=True):
            most = min(each.room, -(-room // n_left))
            budget = Budget(most, each.criterion.should_continue, pick_of(each.step))
            makers.append(drafter.drafting(each.step.context, budget))
            room -= most
        drafts = list[Draft]()
        with self._guarded(drafter):
            drafts = self._draft_side_by_side(asked, makers)
        seconds = (clock() - began) / max(1, sum(len(each.criterion.confidences) for each in asked))
        return [
            drafted(drafter.name, each.criterion, draft, seconds, each.criterion.n_rest * seconds)
            for each, draft in zip(asked, drafts, strict=False)
        ]

    def _draft_side_by_side(self, asked: Sequence[Asked], makers: Sequence[Drafting]) -> list[Draft]:
        """Advance all drafting generators with shared passes until the last one stops."""
        drafts = [NO_DRAFT] * len(asked)
        wanted = {i: context for i, maker in enumerate(makers) if (context := next(maker, None)) is not None}
        while wanted:
            rows = asked[0].drafter.forward_all(list(wanted.values()))
            for i, logits in zip(list(wanted), rows, strict=True):
                self.controller.states.set_kind(asked[i].step.state.kind)
                try:
                    wanted[i] = makers[i].send(logits)
                except StopIteration as end:
                    drafts[i] = end.value
                    del wanted[i]
                except SettingsError:  # as in `_guarded`
                    del wanted[i]
        return drafts

    def _draft(self, drafter: Drafter, choice: Choice, step: StepInput, room: int) -> Proposal:
        """Draft with a model, token by token, until it no longer pays."""
        if self.threads:
            self.threads.set()
        criterion = self.controller.criterion(drafter.name, choice)
        draft = drafter.propose(step.context, Budget(room, criterion.should_continue, pick_of(step))).first(room)
        first, rest = criterion.seconds()
        if self.threads and criterion.n_rest > 0 and drafter.has_passes:
            times = self.controller.states[drafter.name].times
            times.scale(self.threads.draft.observe(rest / criterion.n_rest / times.rest) or 1.0)
        return drafted(drafter.name, criterion, draft, first, rest)

    def _look_up(self, drafter: Drafter, step: StepInput, terms: Terms, room: int) -> Proposal:
        """Propose with a lookup: first all that it finds, then the controller decides how much to use."""
        confidences: list[float] = []
        clock = self.controller.passes.clock
        began = clock()

        def accept(confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
            confidences.append(confidence)
            return CONTINUE

        budget = Budget(room, accept, pick_of(step), forced=step.sampler.forced)
        whole = drafter.propose(step.context, budget).first(room)
        confidences = confidences[: len(whole)]
        k, gain = self.controller.length(terms, drafter.name, confidences)
        tokens = whole.tokens[: len(confidences)]
        return Proposal(drafter.name, tokens, confidences, whole.first(k), clock() - began, expected_gain=gain)


def pick_of(step: StepInput) -> Callable[[Logits, Path], Pick]:
    """Return the function with which a drafter picks a token for a sequence."""
    return partial(step.state.rule.pick, step.sampler)


def drafted(name: str, criterion: StoppingCriterion, draft: Draft, first: float, rest: float) -> Proposal:
    """Return the proposal of a model that took these seconds for its first token and for the others."""
    tokens = criterion.drafted(draft.tokens)
    return Proposal(name, tokens, criterion.confidences, draft, first, rest, criterion.n_rest)


def outcome(proposal: Proposal, tokens: tuple[int, ...]) -> DraftOutcome:
    """Compare a proposal with the generated tokens; proposed tokens beyond them cannot be compared."""
    name, proposed, confidences, draft, first, rest, n_rest, gain = proposal
    n_comparable = min(len(proposed), len(tokens))
    is_right = proposed[:n_comparable] == tokens[:n_comparable]
    n_matched = n_comparable if is_right else common_start(proposed, tokens)
    return DraftOutcome(name, confidences, n_comparable, n_matched, first, rest, n_rest, len(draft.tokens), gain)
