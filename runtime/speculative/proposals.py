"""Collects proposals from drafters, as the controller decides, and compares them with the generated tokens.

Knows drafters, the controller and times; knows no target and no verification rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class Proposed(NamedTuple):
    """The proposals for a sequence's step, and the choice about each drafter that takes part, by name."""

    proposals: Sequence[Proposal]
    choices: dict[str, Choice]

    @property
    def used(self) -> Proposal | None:
        """The proposal that is verified."""
        return next((proposal for proposal in self.proposals if proposal.draft.tokens), None)

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

    def propose(self, step: StepInput, terms: Terms, room: int, later: list[Asked] | None = None) -> Proposed:
        """Return the proposals of the drafters that take part in a reply.

        Lookups run first. Only one proposal is verified; others are only scored. A draft has at most `room` tokens.
        Drafters that share passes among sequences are deferred to `later`, if that is given.
        """
        proposals, choices, states = list[Proposal](), dict[str, Choice](), self.controller.states
        taking_part = [drafter for drafter in self.lineup.drafters if drafter.name in step.state.drafters]
        in_order = sorted(taking_part, key=lambda drafter: -states[drafter.name].expected_gain)
        for drafter in in_order:
            if drafter.is_model_free:
                choices[drafter.name] = self.controller.choose(terms, drafter.name)
                proposals += self._ask(drafter, choices[drafter.name], step, terms, room)
        if len(proposals) > 1:
            proposals = only_best(proposals)
        for drafter in in_order:
            if drafter.is_model_free:
                continue
            if any(proposal.draft.tokens for proposal in proposals):
                choices[drafter.name] = Choice(Decision.LATE)
                continue
            can_score = step.state.rule.can_score_rejected
            choice = choices[drafter.name] = self.controller.choose(terms, drafter.name, can_score)
            if later is None or not drafter.shares_passes:
                proposals += self._ask(drafter, choice, step, terms, room)
            elif choice.decision.asks:
                later.append(Asked(drafter, step, self.controller.criterion(drafter.name, choice), room))
        return Proposed(proposals, choices)

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
        try:
            drafts = self._draft_side_by_side(asked, makers)
        except SlipstreamError as error:
            self.lineup.drop(drafter, error)
            return []
        seconds = (clock() - began) / max(1, sum(len(each.criterion.confidences) for each in asked))
        return [self._proposal(each, draft, seconds) for each, draft in zip(asked, drafts, strict=True)]

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
                except SettingsError:  # as in `_ask`
                    del wanted[i]
        return drafts

    def _proposal(self, asked: Asked, draft: Draft, seconds: float) -> Proposal:
        """Return the proposal of a draft of which every token took `seconds`."""
        criterion, n_rest = asked.criterion, max(0, len(asked.criterion.confidences) - 1)
        tokens = criterion.drafted(draft.tokens)
        return Proposal(
            asked.drafter.name,
            tokens,
            criterion.confidences,
            draft,
            seconds,
            n_rest * seconds,
            n_rest,
        )

    def _ask(self, drafter: Drafter, choice: Choice, step: StepInput, terms: Terms, room: int) -> list[Proposal]:
        """Return a drafter's proposal as a list; empty if the controller skips the drafter or it fails."""
        if not choice.decision.asks:
            return []
        try:
            if drafter.is_model_free:
                return [self._look_up(drafter, step, terms, room)]
            return [self._draft(drafter, choice, step, room)]
        except SettingsError:
            return []  # caused by the grammar or a bias, not by the drafter; the target raises it too if it gets there
        except SlipstreamError as error:
            self.lineup.drop(drafter, error)
            return []

    def _draft(self, drafter: Drafter, choice: Choice, step: StepInput, room: int) -> Proposal:
        """Draft with a model, token by token, until it no longer pays."""
        if self.threads:
            self.threads.set()
        criterion = self.controller.criterion(drafter.name, choice)
        draft = drafter.propose(step.context, Budget(room, criterion.should_continue, pick_of(step))).first(room)
        first, rest = criterion.seconds()
        n_rest = max(0, len(criterion.confidences) - 1)
        if self.threads and n_rest > 0 and drafter.has_passes:
            times = self.controller.states[drafter.name].times
            times.scale(self.threads.draft.observe(1, rest / n_rest, times.rest) or 1.0)
        tokens = criterion.drafted(draft.tokens)
        return Proposal(
            drafter.name,
            tokens,
            criterion.confidences,
            draft,
            first,
            rest,
            n_rest,
        )

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


def only_best(proposals: list[Proposal]) -> list[Proposal]:
    """Keep the draft of the proposal with the highest expected gain only; the others are just scored."""
    best = max(proposals, key=lambda proposal: (bool(proposal.draft.tokens), proposal.expected_gain))
    return [each if each is best else each._replace(draft=NO_DRAFT) for each in proposals]


def outcome(proposal: Proposal, tokens: tuple[int, ...]) -> DraftOutcome:
    """Compare a proposal with the generated tokens; proposed tokens beyond them cannot be compared."""
    name, proposed, confidences, draft, first, rest, n_rest, gain = proposal
    n_comparable = min(len(proposed), len(tokens))
    is_right = proposed[:n_comparable] == tokens[:n_comparable]
    n_matched = n_comparable if is_right else common_start(proposed, tokens)
    return DraftOutcome(name, confidences, n_comparable, n_matched, first, rest, n_rest, len(draft.tokens), gain)
