"""Which drafters take part in the reply whose turn it is: who is let into it, who goes and comes back with the memory,
and who broke.

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
from runtime.speculative.step import RequestState

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
        self.request = RequestState(drafters=set(self._order))  # the reply that is being made
        self.switch_seconds = 0.0  # that the last change from one reply to another took
        self._set(drafters)

    def _set(self, drafters: Iterable[Drafter]) -> None:
        self.drafters = sorted(drafters, key=lambda each: self._order.index(each.name))
        self.observers = [each for each in self.drafters if type(each).observe is not Drafter.observe]
        self.resting = [each for each in self.drafters if type(each).rest is not Drafter.rest]

    def begin(
        self,
        request: RequestState,
        context: Tokens,
        expected: Sequence[int],
        has_grammar: bool,
        is_cancelled: Cancelled,
    ) -> None:
        """Drafters read the prompt of a reply, where that will repay itself in it."""
        self.request = request
        self.shortage = self.degradation.reason if self.degradation else None
        request.drafters, request.left_out, request.n_idle = set(), None, 0
        for drafter in list(self.drafters):
            if drafter.takes_part(expected, has_grammar):
                drafter.begin(context, expected)
                self._admit(drafter, context, is_cancelled)

    def turn_to(self, request: RequestState, context: Tokens, is_alone: bool) -> None:
        """That reply goes on after steps of another one; what was held of it is made ready in no step's time. What a
        pass of several needs, it makes ready itself.
        """
        began, self.request = time.perf_counter(), request
        if is_alone:
            self._target.resume(context)
        for drafter in list(self.drafters):
            if drafter.name in request.drafters:
                drafter.resume(context)
        self.switch_seconds = time.perf_counter() - began

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """A reply has ended, or was broken off: it is what follows the first `n_prompt` tokens of `context`."""
        for drafter in self.drafters:
            drafter.finish(context, n_prompt)

    def _admit(self, drafter: Drafter, context: Tokens, is_cancelled: Cancelled = lambda: False) -> None:
        """Lets a drafter take part in the reply, unless reading the prompt costs it more than it will save."""
        request = self.request
        request.drafters.add(drafter.name)
        n_uncached = drafter.n_uncached(context)
        if n_uncached <= NEGLIGIBLE:
            return
        if self._controller.repays(drafter.name, n_uncached, request.n_reply):
            self._prefill(drafter, context, n_uncached, is_cancelled)
        else:
            request.drafters.remove(drafter.name)
            why = f"the {drafter.name} drafter would have to read {n_uncached} tokens, more than this reply repays"
            request.left_out = Reason("cost", why)

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
        self.request.n_idle = 0
        drafter.close()
        self._controller.drop(drafter.name)
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def degrade(self, context: Tokens | None = None) -> None:
        """Gives up, or takes back, what memory asks for; what comes back in mid-reply reads its `context` first."""
        if self.degradation is not None:
            self._take_change(self.degradation.update(self.drafters), context)

    def renew(self) -> None:
        """Between two replies: the draft model or head is opened again, as its file is now."""
        if self.degradation is None:
            return
        change = self.degradation.renew(self.drafters)
        for drafter in change.suspended:
            self._controller.states[drafter.name].renew()
        self._take_change(change)

    def _take_change(self, change: Change, context: Tokens | None = None) -> None:
        """Drafters go and come back; a `context` is read by those that do."""
        if change.slots is not None:
            self._target.set_slots(change.slots)
        for drafter in change.suspended:
            self._controller.suspend(drafter.name)
        for drafter in change.restored:
            self._controller.unsuspend(drafter.name)
        left = [drafter for drafter in self.drafters if drafter not in change.suspended]
        self._set([*left, *change.restored])
        self.request.n_idle = 0
        if context is not None:
            for drafter in change.restored:
                self._admit(drafter, context)
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
