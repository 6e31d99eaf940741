"""Which drafters draft for a sequence: which begin it, which go and come back with the memory, and which broke.

Knows drafters and the controller that judges them; drafts nothing.
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

PIECE = 256  # tokens that a drafter reads between two looks at whether to go on
NEGLIGIBLE = 64  # tokens to be read that are not worth a thought
Cancelled = Callable[[], bool]


class Lineup:
    """The drafters that are there now, in order of cost."""

    def __init__(
        self,
        drafters: Sequence[Drafter],
        controller: Controller,
        target: Backend,
        degradation: Degradation | None = None,
    ) -> None:
        self._order = [drafter.name for drafter in drafters]
        self._controller, self._target, self.degradation = controller, target, degradation
        self.failed: Reason | None = None  # set when a drafter broke and was dropped
        self.shortage: Reason | None = None  # set when memory took drafters away, during this reply or before
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
        """Have drafters read the prompt of a reply, where the reply will repay that."""
        self.shortage = self.degradation.reason if self.degradation else None
        state.drafters, state.left_out, state.n_idle = set(), None, 0
        for drafter in list(self.drafters):
            if drafter.takes_part(expected, has_grammar):
                drafter.begin(context, expected)
                self._admit(state, drafter, context, is_cancelled)

    def resume(self, state: DraftingState, context: Tokens) -> None:
        """Make ready what drafters hold of a sequence, after steps of another one."""
        for drafter in list(self.drafters):
            if drafter.name in state.drafters:
                drafter.resume(context)

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context`."""
        for drafter in self.drafters:
            drafter.finish(context, n_prompt)

    def _admit(
        self, state: DraftingState, drafter: Drafter, context: Tokens, is_cancelled: Cancelled = lambda: False
    ) -> None:
        """Let a drafter draft for a sequence, unless reading the prompt costs it more than it will save."""
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
        """Has a drafter read the prompt in pieces, so that it can be cancelled."""
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
        """Goes on without a drafter that broke."""
        self._set(each for each in self.drafters if each is not drafter)
        drafter.close()
        del self._controller.states[drafter.name]
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def degrade(self, state: DraftingState | None = None, context: Tokens | None = None) -> None:
        """Give up, or takes back, what memory asks for; what comes back in mid-reply, of that `state`, reads its
        `context` first.
        """
        if self.degradation is not None:
            self._take_change(self.degradation.update(self.drafters), state, context)

    def renew(self) -> None:
        """Between two replies: the draft model or head is opened again, as its file is now."""
        if self.degradation is None:
            return
        change = self.degradation.renew(self.drafters)
        for drafter in change.suspended:
            self._controller.states[drafter.name].renew()
        self._take_change(change)

    def _take_change(self, change: Change, state: DraftingState | None = None, context: Tokens | None = None) -> None:
        """Drafters go and come back; those that do read the `context` of the sequence of that `state`."""
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
        """Is a drafter lacking, for want of memory or because it broke?"""
        return bool(self.shortage or self.failed)

    @property
    def memory_level(self) -> str:
        """How short memory is, as far as the drafters are kept to it."""
        return self.degradation.level.name if self.degradation else "OK"

    @property
    def given_up(self) -> str:
        """What is given up for want of memory and why, with numbers; "" while nothing is."""
        reason = self.degradation.reason if self.degradation else None
        return reason.text if reason else ""
