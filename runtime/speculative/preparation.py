"""Prepares the drafts of a batch's sequences before their pass.

Knows drafters, the controller and the permitted widths of passes; knows no verification rule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.core.draft import NO_DRAFT, Draft, Tokens
from runtime.core.errors import SlipstreamError
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.passes import Terms
from runtime.speculative.lineup import Lineup
from runtime.speculative.proposals import Proposed, Proposer
from runtime.speculative.step import DraftingState, StepInput, Widths
from runtime.speculative.target import TargetPasses


@dataclass(slots=True)
class Prepared:
    """A sequence's step before its pass."""

    number: int  # index of its input in the batch
    asked: StepInput
    terms: Terms
    found: Proposed
    draft: Draft  # the part of `found` to verify
    is_idle: bool  # whether all drafters were skipped because none was useful lately
    seconds: float  # time of the preparation


class Preparation:
    """Drafts for each sequence of a batch, and in shared passes for several sequences where a drafter supports it."""

    def __init__(self, target: TargetPasses, controller: Controller, lineup: Lineup, proposer: Proposer) -> None:
        self._target, self._controller, self._lineup, self._proposer = target, controller, lineup, proposer
        self.current: DraftingState | None = None  # the sequence of the last step
        self.switch_seconds = 0.0  # time of the last switch from one sequence to another

    def all(self, batch: Sequence[StepInput]) -> tuple[dict[int, SlipstreamError], list[Prepared]]:
        """Draft for these sequences. Return the errors of those that fail, by index, and the prepared others."""
        errors, ready = dict[int, SlipstreamError](), list[Prepared]()
        room = self._target.room(batch, self._controller.max_k)
        for number, each in enumerate(batch):
            try:
                ready.append(self._one(number, each, room, len(batch)))
                room -= len(ready[-1].draft.tokens)
            except SlipstreamError as error:
                errors[number] = error
        if later := [each for each in ready if each.found.later]:
            self._together(later, room)
        return errors, ready

    def _together(self, later: Sequence[Prepared], room: int) -> None:
        """Add the drafts that are made in shared passes; none if the target's pass has no room left."""
        clock = self._controller.passes.clock
        began, asked = clock(), [each.found.later for each in later if each.found.later]
        proposals = self._proposer.propose_together(asked, room) if room > 0 else []
        seconds = (clock() - began) / len(later)
        for i, (each, one) in enumerate(zip(later, asked, strict=True)):
            each.seconds += seconds
            if proposals:
                each.found.proposals.append(proposals[i])
                each.draft = proposals[i].draft
            else:
                each.found.choices[one.drafter.name] = Choice(Decision.CROWDED)

    def _one(self, number: int, asked: StepInput, room: int, n_together: int) -> Prepared:
        """Draft at most `room` tokens for a sequence."""
        state, found = asked.state, Proposed()
        terms = state.terms if state.n_idle > 0 else None
        is_idle = terms is not None and terms.n_together == n_together
        if not is_idle:
            self._switch_to(state, asked.context, n_together)
        clock = self._controller.passes.clock
        began = clock()
        asked.sampler.begin(asked.context, asked.position)
        if terms is None or not is_idle:
            max_k = self._controller.max_k if state.drafters else 0
            most = self._target.most_drafted(state.widths, len(asked.context), max_k)
            terms = state.terms = self._begun(asked, most, n_together)
            room = self._room(asked, min(room, most))
            if room > 0 and not asked.n_unread:
                found = self._proposer.propose(asked, terms, room)
        draft = found.draft if found.proposals else NO_DRAFT
        return Prepared(number, asked, terms, found, draft, is_idle, clock() - began)

    def _room(self, asked: StepInput, room: int) -> int:
        """Return the most draft tokens of a sequence's step that may have `room` of them in its pass. If the backend's
        memory leaves none, its state says why.
        """
        state, n_context = asked.state, len(asked.context)
        room = min(room, asked.most - 1, self._target.n_left(n_context))
        if room <= 0:
            state.left_out = self._target.why_no_room(n_context) or state.left_out
        return room

    def _switch_to(self, state: DraftingState, context: Tokens, n_together: int) -> None:
        """Load the cached conversation of a sequence, outside the measured time of steps. A pass of several sequences
        loads theirs itself.
        """
        if state is self.current:
            return
        began, self.current = time.perf_counter(), state
        if n_together == 1:
            self._target.backend.resume(context, state.widths is Widths.EXACT)
        self._lineup.resume(state, context)
        self.switch_seconds = time.perf_counter() - began

    def _begun(self, asked: StepInput, most: int, n_together: int) -> Terms:
        """Return the terms of a sequence's step with at most `most` draft tokens."""
        state, n_context = asked.state, len(asked.context)
        if self._lineup.drafters:
            self._controller.states.set_kind(state.kind)
        exact_rows = self._target.exact_rows_at(n_context) if state.widths is Widths.PREFER_EXACT else None
        return self._controller.begin(n_context, most, n_together, exact_rows, frozenset(state.drafters))
