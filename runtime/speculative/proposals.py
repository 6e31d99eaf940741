"""Collects proposals from drafters, as the controller decides, and compares them with the generated tokens.

Knows drafters, the controller and times; knows no target and no verification rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from runtime.core.draft import NO_DRAFT, Draft, Logits, Path, common_start
from runtime.core.drafter import CONTINUE, UNKNOWN_TOKEN, Answer, Budget, Drafter, Drafting, Pick
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import PROBE, Choice
from runtime.speculative.control.drafter_state import DraftOutcome
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
    is_probe: bool = False


class Asked(NamedTuple):
    """One sequence's share of a draft made for several sequences."""

    drafter: Drafter
    step: StepInput
    criterion: StoppingCriterion
    room: int  # most draft tokens
    is_probe: bool


class Proposed(NamedTuple):
    """The proposals for a sequence's step, and why other drafters were skipped, by name."""

    proposals: Sequence[Proposal] = ()
    unasked: Mapping[str, str] = {}


class Proposer:
    """Runs drafters, those with the highest expected gain first; one that fails is dropped. With `branches` all
    proposals form one tree.
    """

    def __init__(self, controller: Controller, lineup: Lineup, threads: Threads | None, branches: int) -> None:
        self.controller, self.lineup, self.threads, self.branches = controller, lineup, threads, branches

    def propose(self, step: StepInput, room: int, later: list[Asked] | None = None) -> Proposed:
        """Return the proposals of the drafters that take part in a reply.

        Lookups run first. Only one proposal is verified (all of them in a tree); others are only scored. A draft has at
        most `room` tokens. Drafters that share passes among sequences are deferred to `later`, if that is given.
        """
        proposals, unasked, states = list[Proposal](), dict[str, str](), self.controller.states
        taking_part = [drafter for drafter in self.lineup.drafters if drafter.name in step.state.drafters]
        in_order = sorted(taking_part, key=lambda drafter: -states[drafter.name].expected_gain)
        for drafter in in_order:
            if drafter.is_model_free:
                proposals += self._ask(drafter, step, room, unasked)
        if len(proposals) > 1 and not self.branches:
            proposals = only_best(proposals)
        for drafter in in_order:
            if drafter.is_model_free:
                continue
            if any(proposal.draft.tokens for proposal in proposals) and not self.branches:
                unasked[drafter.name] = "another draft was found first"
            elif later is None or not drafter.shares_passes:
                proposals += self._ask(drafter, step, room, unasked)
            elif (choice := self._chosen(drafter, step, unasked)).decision.asks:
                later.append(self._asked(drafter, choice, step, room))
        return Proposed(proposals, unasked)

    def _asked(self, drafter: Drafter, choice: Choice, step: StepInput, room: int) -> Asked:
        """Return the sequence's share of a draft for several sequences."""
        return Asked(drafter, step, self.controller.criterion(drafter.name, choice), room, choice.decision is PROBE)

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
            is_probe=asked.is_probe,
        )

    def _chosen(self, drafter: Drafter, step: StepInput, unasked: dict[str, str]) -> Choice:
        """Return the controller's choice; if it skips the drafter, add the reason to `unasked`."""
        choice = self.controller.choose(drafter.name, step.state.rule.can_score_rejected)
        if not choice.decision.asks:
            unasked[drafter.name] = choice.decision.why
        return choice

    def _ask(self, drafter: Drafter, step: StepInput, room: int, unasked: dict[str, str]) -> list[Proposal]:
        """Return a drafter's proposal as a list; empty if the controller skips the drafter or it fails."""
        choice = self._chosen(drafter, step, unasked)
        if not choice.decision.asks:
            return []
        try:
            how = self._look_up if drafter.is_model_free else self._draft
            return [how(drafter, choice, step, room)]
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
        draft = drafter.propose(step.context, Budget(room, criterion.should_continue, pick_of(step), self.branches))
        first, rest = criterion.seconds()
        n_rest = max(0, len(criterion.confidences) - 1)
        if self.threads and n_rest > 0 and drafter.has_passes:
            state = self.controller.states[drafter.name]
            change = self.threads.draft.observe(1, rest / n_rest, state.rest_seconds)
            state.scale_seconds(change or 1.0)
        tokens = criterion.drafted(draft.tokens)
        return Proposal(
            drafter.name,
            tokens,
            criterion.confidences,
            draft,
            first,
            rest,
            n_rest,
            is_probe=choice.decision is PROBE,
        )

    def _look_up(self, drafter: Drafter, choice: Choice, step: StepInput, room: int) -> Proposal:
        """Propose with a lookup: first all that it finds, then the controller decides how much to use.

        Of a tree, this keeps the nodes that are as likely as the used part of its trunk.
        """
        confidences: list[float] = []
        clock = self.controller.passes.clock
        began = clock()

        def accept(confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
            confidences.append(confidence)
            return CONTINUE

        budget = Budget(room, accept, pick_of(step), branches=self.branches, forced=step.sampler.forced)
        whole = drafter.propose(step.context, budget)
        trunk = range(len(whole.tokens)) if whole.parents is None else whole.trunk()
        confidences = confidences[: len(trunk)]
        k, gain = self.controller.length(drafter.name, confidences)
        draft = whole.first(trunk[k - 1] + 1) if k else NO_DRAFT
        tokens = tuple(whole.tokens[node] for node in trunk[: len(confidences)])
        return Proposal(drafter.name, tokens, confidences, draft, clock() - began, expected_gain=gain)


def pick_of(step: StepInput) -> Callable[[Logits, Path, int], Pick]:
    """Return the function with which a drafter picks a token for a sequence."""
    return partial(step.state.rule.pick, step.sampler)


def only_best(proposals: list[Proposal]) -> list[Proposal]:
    """Keep the draft of the proposal with the highest expected gain only; the others are just scored."""
    best = max(proposals, key=lambda proposal: (bool(proposal.draft.tokens), proposal.expected_gain))
    return [each if each is best else each._replace(draft=NO_DRAFT) for each in proposals]


def outcome(proposal: Proposal, tokens: tuple[int, ...]) -> DraftOutcome:
    """Compare a proposal with the generated tokens; proposed tokens beyond them cannot be compared."""
    name, proposed, confidences, draft, first, rest, n_rest, gain, is_probe = proposal
    n_comparable = min(len(proposed), len(tokens))
    is_right = proposed[:n_comparable] == tokens[:n_comparable]
    n_matched = n_comparable if is_right else common_start(proposed, tokens)
    return DraftOutcome(
        name, confidences, n_comparable, n_matched, first, rest, n_rest, bool(draft.tokens), gain, is_probe
    )


def confidences(proposals: Sequence[Proposal], draft: Draft) -> tuple[float, ...]:
    """Return the confidences of a draft's tokens if one drafter proposed it as a chain; else empty."""
    used = [proposal for proposal in proposals if proposal.draft.tokens]
    return tuple(used[0].confidences[: len(draft.tokens)]) if len(used) == 1 and draft.parents is None else ()
