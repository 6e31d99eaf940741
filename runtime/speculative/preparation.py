"""What is drafted for the sequences of a batch before their pass.

Knows drafters, the controller and how wide passes may be; knows no rule of acceptance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runtime.core.draft import NO_DRAFT, Draft, Tokens, merge
from runtime.core.errors import SlipstreamError
from runtime.speculative.control.controller import Controller
from runtime.speculative.lineup import Lineup
from runtime.speculative.proposals import Asked, Proposal, Proposed, Proposer
from runtime.speculative.step import DraftingState, StepInput, Widths
from runtime.speculative.target import TargetPasses

NO_ROOM = "the pass had no room left for its draft, or it broke"


class Prepared(NamedTuple):
    """A sequence's step before its pass."""

    number: int  # of its input
    asked: StepInput
    proposals: Sequence[Proposal]
    draft: Draft
    is_idle: bool  # was no drafter asked, because none was of use lately?
    seconds: float  # that it took
    unasked: Mapping[str, str]  # why drafters were not asked, by name


class Preparation:
    """Asks drafters for each sequence, and for several at once where they share passes."""

    def __init__(self, target: TargetPasses, controller: Controller, lineup: Lineup, proposer: Proposer) -> None:
        self._target, self._controller, self._lineup, self._proposer = target, controller, lineup, proposer
        self.current: DraftingState | None = None  # the sequence of the last step
        self.switch_seconds = 0.0  # that the last change from one sequence to another took

    def all(self, batch: Sequence[StepInput]) -> tuple[dict[int, SlipstreamError], list[Prepared]]:
        """Draft for these sequences. Returns the errors of those that fail, by number, and the others."""
        errors, ready, later = dict[int, SlipstreamError](), list[Prepared](), dict[int, Asked]()
        room = self._target.room(batch, self._controller.max_k)
        for number, each in enumerate(batch):
            asked: list[Asked] | None = [] if len(batch) > 1 else None
            try:
                ready.append(self._one(number, each, room, len(batch), asked))
            except SlipstreamError as error:
                errors[number] = error
                continue
            room -= len(ready[-1].draft.tokens)
            if asked:
                later[len(ready) - 1] = asked[0]
        return errors, self._together(ready, later, room) if later else ready

    def _together(self, ready: list[Prepared], later: Mapping[int, Asked], room: int) -> list[Prepared]:
        """Add what is drafted for several of them at once: nothing where the pass has no room left."""
        clock = self._controller.passes.clock
        began = clock()
        proposals = self._proposer.propose_together(list(later.values()), room) if room > 0 else []
        seconds = (clock() - began) / len(later)
        for i, proposal in zip(later, proposals, strict=False):
            each = ready[i]
            ready[i] = each._replace(
                proposals=[*each.proposals, proposal], draft=proposal.draft, seconds=each.seconds + seconds
            )
        for i, asked in later.items() if not proposals else ():
            ready[i] = ready[i]._replace(unasked={**ready[i].unasked, asked.drafter.name: NO_ROOM})
        return ready

    def _one(self, number: int, asked: StepInput, room: int, n_together: int, later: list[Asked] | None) -> Prepared:
        """Draft at most `room` tokens for a sequence, but for what is left for `later`."""
        is_idle = asked.state.n_idle > 0 and self._controller.passes.n_together == n_together
        if not is_idle:
            self._switch_to(asked.state, asked.context, n_together)
        clock = self._controller.passes.clock
        began = clock()
        asked.sampler.begin(asked.context, asked.position)
        found, draft = (Proposed(), NO_DRAFT) if is_idle else self._propose(asked, room, n_together, later)
        return Prepared(number, asked, found.proposals, draft, is_idle, clock() - began, found.unasked)

    def _switch_to(self, state: DraftingState, context: Tokens, n_together: int) -> None:
        """Make ready what is held of that sequence, in no step's time; what a pass of several needs, it makes ready
        itself.
        """
        if state is self.current:
            return
        began, self.current = time.perf_counter(), state
        if n_together == 1:
            self._target.backend.resume(context)
        self._lineup.resume(state, context)
        self.switch_seconds = time.perf_counter() - began

    def _propose(
        self, asked: StepInput, room: int, n_together: int, later: list[Asked] | None
    ) -> tuple[Proposed, Draft]:
        """Return what the drafters of this sequence propose for its step, and the draft of it, of at most `room`
        tokens. What is drafted for several at once is left for `later`.
        """
        state, context = asked.state, asked.context
        if self._lineup.drafters:
            self._controller.states.set_kind(state.kind)
        most_drafted = self._target.most_drafted(state.widths, len(context), self._controller.max_k)
        exact_rows = self._target.exact_rows_at(len(context)) if state.widths is Widths.PREFER_EXACT else None
        self._controller.begin(len(context), most_drafted, n_together, exact_rows, frozenset(state.drafters))
        room = min(room, most_drafted, asked.most - 1, self._target.n_left(len(context)))
        if room <= 0:
            state.left_out = self._target.why_no_room(len(context)) or state.left_out
        if room <= 0 or asked.n_unread or not self._lineup.drafters:
            return Proposed(), NO_DRAFT
        found = self._proposer.propose(asked, room, later)
        used = [proposal.draft for proposal in found.proposals if proposal.draft.tokens]
        return found, merge(used).first(room) if used else NO_DRAFT
