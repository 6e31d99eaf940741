"""Tracks the available drafters and those of each sequence: suspended, restored and failed ones included.

Knows drafters and the controller; drafts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from runtime.core.backend import Backend
from runtime.core.draft import Tokens
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.degradation import Change, Degradation
from runtime.speculative.step import DraftingState

PIECE = 256  # tokens that a drafter prefills between two checks for cancellation
NEGLIGIBLE = 64  # uncached tokens up to which the cost of prefill is ignored
Cancelled = Callable[[], bool]


class Lineup:
    """The drafters that are available now, in order of cost."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        controller: Controller,
        target: Backend,
        degradation: Degradation | None = None,
    ) -> None:
        self._order = [drafter.name for drafter in drafters]
        self._controller, self._target, self.degradation = controller, target, degradation
        self.failed: Reason | None = None  # set when a drafter failed and was dropped
        self.shortage: Reason | None = None  # set when drafters are suspended for memory, in this reply or before
        self._set(drafters)

    def _set(self, drafters: Iterable[Drafter]) -> None:
        self.drafters = sorted(drafters, key=lambda each: self._order.index(each.name))
        self.observers = [each for each in self.drafters if type(each).observe is not Drafter.observe]
        self.resting = [each for each in self.drafters if type(each).rest is not Drafter.rest]

    def begin(
        self,
        state: DraftingState,
        context: Tokens,
        expected: Sequence[int],
        has_grammar: bool,
        is_cancelled: Cancelled,
    ) -> None:
        """Begin a reply with the drafters that can take part; they prefill its prompt if the reply repays that."""
        self.shortage = self.degradation.reason if self.degradation else None
        state.drafters, state.left_out, state.n_idle = set(), None, 0
        for drafter in list(self.drafters):
            if drafter.takes_part(expected, has_grammar):
                drafter.begin(context, expected)
                self._admit(state, drafter, context, is_cancelled)

    def resume(self, state: DraftingState, context: Tokens) -> None:
        """Switch the drafters to a sequence, after steps of another one."""
        for drafter in list(self.drafters):
            if drafter.name in state.drafters:
                drafter.resume(context)

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """End a reply, complete or not: the tokens of `context` after the first `n_prompt`."""
        for drafter in self.drafters:
            drafter.finish(context, n_prompt)

    def _admit(
        self, state: DraftingState, drafter: Drafter, context: Tokens, is_cancelled: Cancelled = lambda: False
    ) -> None:
        """Admit a drafter to a sequence, unless reading the prompt would cost more than it will save."""
        state.drafters.add(drafter.name)
        n_uncached = drafter.n_uncached(context)
        if n_uncached <= NEGLIGIBLE:
            return
        if self._controller.repays(drafter.name, n_uncached, state.n_reply):
            self._prefill(drafter, context, n_uncached, is_cancelled)
        else:
            state.drafters.remove(drafter.name)
            why = f"the {drafter.name} drafter would have to read {n_uncached} tokens, more than this reply repays"
            state.left_out = Reason("cost", why)

    def _prefill(self, drafter: Drafter, context: Tokens, n_uncached: int, is_cancelled: Cancelled) -> None:
        """Prefill the prompt with a drafter, in pieces so that it can be cancelled."""
        began, n = time.perf_counter(), len(context)
        try:
            for end in [*range(n - n_uncached + PIECE, n, PIECE), n]:
                if is_cancelled():
                    return
                drafter.prefill(context[:end], n)
        except SlipstreamError as error:
            self.drop(drafter, error)
        else:
            self._controller.states[drafter.name].learn_prefill(n_uncached, time.perf_counter() - began)

    def drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Drop a drafter that failed."""
        self._set(each for each in self.drafters if each is not drafter)
        drafter.close()
        del self._controller.states[drafter.name]
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def degrade(self, state: DraftingState | None = None, context: Tokens | None = None) -> None:
        """Suspend or restore drafters as memory requires. Drafters that are restored during a reply prefill its
        `context`; `state` is the state of that reply.
        """
        if self.degradation is not None:
            self._take_change(self.degradation.update(self.drafters), state, context)

    def renew(self) -> None:
        """Reopen the draft model or head from its current file. Call it between two replies."""
        if self.degradation is None:
            return
        change = self.degradation.renew(self.drafters)
        for drafter in change.suspended:
            self._controller.states[drafter.name].renew()
        self._take_change(change)

    def _take_change(self, change: Change, state: DraftingState | None = None, context: Tokens | None = None) -> None:
        """Apply a change; restored drafters prefill the `context` of the sequence with this `state`."""
        if change.slots is not None:
            self._target.set_slots(change.slots)
        for drafter in change.suspended:
            self._controller.states.suspend(drafter.name)
        for drafter in change.restored:
            self._controller.states.restore(drafter.name)
        left = [drafter for drafter in self.drafters if drafter not in change.suspended]
        self._set([*left, *change.restored])
        if state is not None and context is not None:
            state.n_idle *= not (change.suspended or change.restored)
            for drafter in change.restored:
                self._admit(state, drafter, context)
        reason = self.degradation.reason if self.degradation else None
        self.shortage, self.failed = reason or self.shortage, change.failed or self.failed

    @property
    def is_impaired(self) -> bool:
        """Whether a drafter is missing because memory is short or because it failed."""
        return bool(self.shortage or self.failed)

    @property
    def memory_level(self) -> str:
        """Name of the memory level applied to the drafters."""
        return self.degradation.level.name if self.degradation else "OK"

    @property
    def given_up(self) -> str:
        """What is suspended because memory is short, and why, with numbers; "" while nothing is."""
        reason = self.degradation.reason if self.degradation else None
        return reason.text if reason else ""
