"""Asks drafters for proposals, as the controller decides, and compares proposals with the tokens that came.

Knows drafters, the controller and times; knows no target and no rule of acceptance.
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
    """What a drafter proposed in a step, and how much of it goes to the target."""

    name: str
    tokens: tuple[int, ...]  # a chain
    confidences: Sequence[float]  # of each of them, and perhaps of one more that was rejected unnamed
    draft: Draft  # NO_DRAFT: the rest is only scored
    first_seconds: float
    rest_seconds: float = 0.0
    n_rest: int = 0
    expected_gain: float = 0.0  # tokens that using it brings, as far as is believed
    is_probe: bool = False


class Asked(NamedTuple):
    """A drafter that is to be asked for a sequence, together with what is asked for others."""

    drafter: Drafter
    step: StepInput
    criterion: StoppingCriterion
    room: int  # tokens at most
    is_probe: bool


class Proposed(NamedTuple):
    """What drafters propose for a sequence's step, and why others were not asked, by name."""

    proposals: Sequence[Proposal] = ()
    unasked: Mapping[str, str] = {}


class Proposer:
    """Asks drafters, those that promise most first; one that breaks is dropped. With `branches` all proposals form one
    tree.
    """

    def __init__(self, controller: Controller, lineup: Lineup, threads: Threads | None, branches: int) -> None:
        self.controller, self.lineup, self.threads, self.branches = controller, lineup, threads, branches

    def propose(self, step: StepInput, room: int, later: list[Asked] | None = None) -> Proposed:
        """What the drafters propose that take part in a reply.

        One proposal is worth a wider pass (all of them for a tree), others are only scored. Lookups are asked first. A
        draft has at most `room` tokens. What can be asked for several replies at once is left for `later`, where that
        is given.
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
        """What that drafter is to be asked together with others."""
        return Asked(drafter, step, self.controller.criterion(drafter.name, choice), room, choice.decision is PROBE)

    def propose_together(self, asked: Sequence[Asked], room: int) -> list[Proposal]:
        """What a drafter proposes for several replies side by side, a token of each from one pass; at most `room`
        tokens in all. Nothing where it breaks.
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
        """Lets all go on until the last one stops."""
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
        """A draft of which every token took so long."""
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
        """Return the controller's choice; why not is noted where the drafter is not asked."""
        choice = self.controller.choose(drafter.name, step.state.rule.can_score_rejected)
        if not choice.decision.asks:
            unasked[drafter.name] = choice.decision.why
        return choice

    def _ask(self, drafter: Drafter, step: StepInput, room: int, unasked: dict[str, str]) -> list[Proposal]:
        """A proposal; none from a drafter that is not worth asking, or that broke."""
        choice = self._chosen(drafter, step, unasked)
        if not choice.decision.asks:
            return []
        try:
            how = self._look_up if drafter.is_model_free else self._draft
            return [how(drafter, choice, step, room)]
        except SettingsError:
            return []  # the grammar or a bias, not the drafter: if the target comes there too, it will say so
        except SlipstreamError as error:
            self.lineup.drop(drafter, error)
            return []

    def _draft(self, drafter: Drafter, choice: Choice, step: StepInput, room: int) -> Proposal:
        """Token by token, until it no longer pays."""
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
        """A lookup proposes all it can, and only then is decided how much of it to use.

        Of a tree, that is all that is as likely as its trunk.
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
    """Return how a drafter chooses a token for a sequence."""
    return partial(step.state.rule.pick, step.sampler)


def only_best(proposals: list[Proposal]) -> list[Proposal]:
    """Leaves a draft only to the proposal that promises most; the others are scored."""
    best = max(proposals, key=lambda proposal: (bool(proposal.draft.tokens), proposal.expected_gain))
    return [each if each is best else each._replace(draft=NO_DRAFT) for each in proposals]


def outcome(proposal: Proposal, tokens: tuple[int, ...]) -> DraftOutcome:
    """A proposal compared with the tokens that came: what lies beyond them, nobody knows."""
    name, proposed, confidences, draft, first, rest, n_rest, gain, is_probe = proposal
    n_comparable = min(len(proposed), len(tokens))
    is_right = proposed[:n_comparable] == tokens[:n_comparable]
    n_matched = n_comparable if is_right else common_start(proposed, tokens)
    return DraftOutcome(
        name, confidences, n_comparable, n_matched, first, rest, n_rest, bool(draft.tokens), gain, is_probe
    )


def confidences(proposals: Sequence[Proposal], draft: Draft) -> tuple[float, ...]:
    """Of a draft's tokens, where one drafter proposed them as a chain; none of a tree, whose order is another."""
    used = [proposal for proposal in proposals if proposal.draft.tokens]
    return tuple(used[0].confidences[: len(draft.tokens)]) if len(used) == 1 and draft.parents is None else ()
