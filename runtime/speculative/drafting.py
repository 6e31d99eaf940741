"""Drafts for the sequences of a batch before their pass, with the drafters that the controller chooses.

Knows drafters, the controller and the permitted widths of passes; knows no verification rule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from runtime.core.draft import NO_DRAFT, Draft, Logits, Path, Tokens
from runtime.core.drafter import CONTINUE, UNKNOWN_TOKEN, Answer, Budget, Drafter, DraftGenerator, Pick
from runtime.core.errors import SettingsError, SlipstreamError, StoppedError
from runtime.speculative.active_drafters import ActiveDrafters
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.threads import Threads
from runtime.speculative.step import DeferredDraft, DraftingState, Proposal, StepInput, StepPlan, Widths, drafted
from runtime.speculative.target import TargetPasses


class Drafting:
    """Drafts for each sequence of a batch, and in shared passes for several sequences where a drafter supports it. A
    drafter that fails is dropped.
    """

    def __init__(
        self, target: TargetPasses, controller: Controller, active: ActiveDrafters, threads: Threads | None = None
    ) -> None:
        self._target, self._controller, self._lineup, self._threads = target, controller, active, threads
        self.current: DraftingState | None = None  # the sequence of the last step
        self.switch_seconds = 0.0  # time of the last switch from one sequence to another

    def propose(self, batch: Sequence[StepInput]) -> tuple[dict[int, Exception], list[StepPlan]]:
        """Draft for these sequences. Return the errors of those that fail, by index, and the prepared others."""
        errors, ready = dict[int, Exception](), list[StepPlan]()
        target = self._target.of(batch[0].state.kind.adapters)
        room, clock = target.room(batch, self._controller.max_k), self._controller.passes.clock
        for number, asked in enumerate(batch):
            try:
                idle = self._idle_terms(asked.state, len(batch))
                if idle is None:
                    self._switch_to(asked.state, asked.context, len(batch))
                began = clock()
                asked.sampler.begin(asked.context, asked.position)
                if idle is None:
                    step = self._begun(number, asked, room, len(batch))
                else:
                    step = StepPlan(number, asked, idle, is_idle=True)
                if step.room > 0:
                    self._ask(step)
            except StoppedError:
                raise
            except Exception as error:  # of this sequence alone
                errors[number] = error
            else:
                step.seconds = clock() - began
                room -= len(step.draft.tokens)
                ready.append(step)
        self._draft_later([step.later for step in ready if step.later], room)
        return errors, ready

    def _idle_terms(self, state: DraftingState, n_together: int) -> Terms | None:
        """Return the terms of a sequence's last step if its next one skips all drafters, as none was useful lately."""
        terms = state.terms if state.n_idle > 0 else None
        return terms if terms is not None and terms.n_together == n_together else None

    def _switch_to(self, state: DraftingState, context: Tokens, n_together: int) -> None:
        """Load the cached conversation of a sequence, outside the measured time of steps. A pass of several sequences
        loads theirs itself.
        """
        if state is self.current:
            return
        began, self.current = time.perf_counter(), state
        if n_together == 1:
            self._target.resume(context, state.widths is Widths.EXACT, state.kind.adapters)
        self._lineup.resume(state, context)
        self.switch_seconds = time.perf_counter() - began

    def _begun(self, number: int, asked: StepInput, room: int, n_together: int) -> StepPlan:
        """Begin a sequence's step in which drafters may run, with at most `room` draft tokens."""
        state, n_context, target = asked.state, len(asked.context), self._target.of(asked.state.kind.adapters)
        most = target.most_drafted(state.widths, n_context, self._controller.max_k if state.drafters else 0)
        if self._lineup.drafters:
            self._controller.set_kind(*state.kind)
        exact_rows = target.exact_rows_at(n_context) if state.widths is Widths.PREFER_EXACT else None
        terms = self._controller.begin(n_context, most, n_together, exact_rows, frozenset(state.drafters))
        state.terms = terms
        return StepPlan(number, asked, terms, self._room(asked, min(room, most)))

    def _room(self, asked: StepInput, room: int) -> int:
        """Return the most draft tokens of a sequence's step that may have `room` of them in its pass. If the backend's
        memory leaves none, its state says why.
        """
        state, n_context = asked.state, len(asked.context)
        room = min(room, asked.most - 1, self._target.n_left(n_context))
        if room <= 0:
            state.left_out = self._target.why_no_room(n_context) or state.left_out
        return 0 if asked.n_unread else room

    def _ask(self, step: StepPlan) -> None:
        """Run the drafters that take part: first lookups, then others until one has a draft, those with the highest
        expected gain first. Where several sequences share the step, a draft that can share passes is deferred.
        """
        state, states = step.asked.state, self._controller.states
        drafters = [each for each in self._lineup.drafters if each.name in state.drafters]
        for drafter in sorted(drafters, key=lambda each: (not each.is_model_free, -states[each.name].expected_gain)):
            if not drafter.is_model_free and (step.used or step.later):
                choice = Choice(Decision.LATE)
            else:
                choice = self._controller.choose(step.terms, drafter.name, state.rule.can_score_rejected)
            step.choices[drafter.name] = choice
            if not choice.decision.asks:
                continue
            with self._guarded(drafter):
                if drafter.is_model_free:
                    step.add(self._look_up(drafter, step))
                elif step.terms.n_together > 1 and drafter.shares_passes:
                    step.later = DeferredDraft(step, drafter, self._controller.criterion(drafter.name, choice))
                else:
                    step.add(self._draft(drafter, choice, step))

    @contextmanager
    def _guarded(self, drafter: Drafter) -> Iterator[None]:
        """End the block without a proposal where the drafter fails, which drops it, or has no token to propose."""
        try:
            yield
        except SettingsError:
            pass  # caused by the grammar or a bias, not by the drafter; the target raises it too if it gets there
        except SlipstreamError as error:
            self._lineup.drop(drafter, error)

    def _look_up(self, drafter: Drafter, step: StepPlan) -> Proposal:
        """Propose with a lookup: first all that it finds, then the controller decides how much to use."""
        confidences: list[float] = []
        clock, asked = self._controller.passes.clock, step.asked
        began = clock()

        def accept(confidence: float, token: int = UNKNOWN_TOKEN) -> Answer:
            confidences.append(confidence)
            return CONTINUE

        budget = Budget(step.room, accept, pick_of(asked), forced=asked.sampler.forced)
        whole = until_end(drafter.propose(view_of(asked, drafter), budget).first(step.room), asked.is_end)
        confidences = confidences[: len(whole)]
        k, gain = self._controller.length(step.terms, drafter.name, confidences)
        tokens = whole.tokens[: len(confidences)]
        return Proposal(drafter.name, tokens, confidences, whole.first(k), clock() - began, expected_gain=gain)

    def _draft(self, drafter: Drafter, choice: Choice, step: StepPlan) -> Proposal:
        """Draft with a model, token by token, until it no longer pays."""
        if self._threads:
            self._threads.set()
        criterion = self._controller.criterion(drafter.name, choice)
        budget = Budget(step.room, criterion.should_continue, pick_of(step.asked), is_end=step.asked.is_end)
        draft = drafter.propose(view_of(step.asked, drafter), budget).first(step.room)
        first, rest = criterion.seconds()
        if self._threads and criterion.n_rest > 0 and drafter.has_passes:
            times = self._controller.states[drafter.name].times
            times.scale(self._threads.draft.observe(rest / criterion.n_rest / times.rest) or 1.0)
        return drafted(drafter.name, criterion, draft, first, rest)

    def _draft_later(self, later: Sequence[DeferredDraft], room: int) -> None:
        """Make the deferred drafts, at most `room` tokens in total: those of each drafter in passes of its own."""
        n_left = len(later)
        for drafter in dict.fromkeys(each.drafter for each in later):
            own = [each for each in later if each.drafter is drafter]
            self._draft_together(drafter, own, -(-room * len(own) // n_left))
            n_left -= len(own)
            room -= sum(len(each.step.draft.tokens) for each in own)

    def _draft_together(self, drafter: Drafter, later: Sequence[DeferredDraft], room: int) -> None:
        """Draft for several sequences in shared passes with one token of each, at most `room` tokens in total."""
        clock = self._controller.passes.clock
        began, drafts = clock(), list[Draft]()
        if room > 0:
            with self._guarded(drafter):
                drafts = self._side_by_side(drafter, later, room)
        seconds = clock() - began
        per_token = seconds / max(1, sum(len(each.criterion.confidences) for each in later))
        for i, (step, _, criterion) in enumerate(later):
            step.seconds += seconds / len(later)
            if drafts:
                step.add(drafted(drafter.name, criterion, drafts[i], per_token, criterion.n_rest * per_token))
            else:
                step.choices[drafter.name] = Choice(Decision.CROWDED)

    def _side_by_side(self, drafter: Drafter, later: Sequence[DeferredDraft], room: int) -> list[Draft]:
        """Return these drafts: all generators are advanced with shared passes until the last one stops."""
        makers = generators(later, room)
        drafts = [NO_DRAFT] * len(later)
        wanted = {i: context for i, maker in enumerate(makers) if (context := next(maker, None)) is not None}
        while wanted:
            rows = drafter.forward_all(list(wanted.values()))
            for i, logits in zip(list(wanted), rows, strict=True):
                self._controller.set_kind(*later[i].step.asked.state.kind)
                try:
                    wanted[i] = makers[i].send(logits)
                except StopIteration as end:
                    drafts[i] = end.value
                    del wanted[i]
                except SettingsError:  # as in `_guarded`
                    del wanted[i]
        return drafts


def generators(later: Sequence[DeferredDraft], room: int) -> list[DraftGenerator]:
    """Return the generators of these drafts, which share `room` tokens evenly."""
    found = list[DraftGenerator]()
    for n_left, (step, drafter, criterion) in zip(range(len(later), 0, -1), later, strict=True):
        most = min(step.room, -(-room // n_left))
        budget = Budget(most, criterion.should_continue, pick_of(step.asked), is_end=step.asked.is_end)
        found.append(drafter.drafting(view_of(step.asked, drafter), budget))
        room -= most
    return found


def until_end(draft: Draft, is_end: Callable[[int], bool]) -> Draft:
    """Return a chain up to the first token that ends the reply."""
    return draft.first(next((i + 1 for i, token in enumerate(draft.tokens) if is_end(token)), len(draft)))


def pick_of(asked: StepInput) -> Callable[[Logits, Path], Pick]:
    """Return the function with which a drafter picks a token for a sequence."""
    return partial(asked.state.rule.pick, asked.sampler)


def view_of(asked: StepInput, drafter: Drafter) -> Tokens:
    """Return the part of a context that a drafter reads: all of it, unless it has images."""
    return asked.state.view(asked.context, drafter) if asked.state.reading.has_images else asked.context
