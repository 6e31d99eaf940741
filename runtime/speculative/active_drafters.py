"""Tracks the available drafters and those of each sequence: suspended, restored and failed ones included.

Knows drafters and the controller; drafts nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from runtime.core.backend import Backend
from runtime.core.draft import Tokens
from runtime.core.drafter import Drafter
from runtime.core.errors import SlipstreamError
from runtime.core.image_runs import text_only
from runtime.drafters.registry import described
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.degradation import Change, Degradation
from runtime.speculative.step import DraftingState, PromptReading

PIECE = 32  # tokens that a drafter prefills between two passes of the target
IN_A_ROW = 2.0  # time of reading between two passes, in multiples of a plain pass, up to which another piece is read
RISKED = 0.25  # share of what drafts are expected to save that may be spent before they have saved anything
NEGLIGIBLE = 64  # uncached tokens up to which the cost of prefill is ignored
Cancelled = Callable[[], bool]


class ActiveDrafters:
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
    ) -> Iterator[None]:
        """Begin a reply with the drafters that can take part. Those that have to prefill its prompt do so if the reply
        repays that, after the others. Yields before each piece of it, where passes may come between.
        """
        self.shortage = self.degradation.reason if self.degradation else None
        state.drafters, state.left_out, state.n_idle = set(), None, 0
        late = list[Drafter]()
        for drafter in state.readers(self.drafters):
            if drafter.takes_part(expected, has_grammar):
                with self._guarded(drafter):
                    view = state.view(context, drafter)
                    drafter.begin(view, expected)
                    if drafter.n_uncached(view) > NEGLIGIBLE:
                        late.append(drafter)
                    else:
                        state.drafters.add(drafter.name)
        for drafter in late:
            if drafter in self.drafters:
                with self._guarded(drafter):
                    yield from self._admit(state, drafter, is_cancelled)

    def resume(self, state: DraftingState, context: Tokens) -> None:
        """Switch the drafters to a sequence, after steps of another one."""
        for drafter in list(self.drafters):
            if drafter.name in state.drafters:
                with self._guarded(drafter):
                    drafter.resume(state.view(context, drafter))

    def finish(self, context: Tokens, n_prompt: int) -> None:
        """End a reply, complete or not: the tokens of `context` after the first `n_prompt`."""
        n_prompt, context = len(text_only(context[:n_prompt])), text_only(context)
        for drafter in list(self.drafters):
            with self._guarded(drafter):
                drafter.finish(context, n_prompt)

    @contextmanager
    def _guarded(self, drafter: Drafter) -> Iterator[None]:
        """Drop the drafter if it fails in the block."""
        try:
            yield
        except SlipstreamError as error:
            self.drop(drafter, error)

    def _admit(self, state: DraftingState, drafter: Drafter, is_cancelled: Cancelled = lambda: False) -> Iterator[None]:
        """Admit a drafter to a sequence, unless reading the prompt would cost more than it will save. Yields between
        pieces of it, and of the tokens that are generated meanwhile.
        """
        state.drafters.discard(drafter.name)  # it may have been suspended since
        if (n_uncached := drafter.n_uncached(state.view(state.reading.context, drafter))) > NEGLIGIBLE:
            who = described(drafter.name)
            if not self._controller.repays(drafter.name, n_uncached, state.n_reply):
                why = f"{who} would first have to read {n_uncached} tokens, more than this reply repays"
                state.left_out = Reason("cost", why)
                return
            state.left_out = Reason("cost", f"{who} was still reading the prompt")
            saved, state.reading.share = self._controller.saved(drafter.name, state.n_reply)
            state.reading.at_once += RISKED * saved
            while n_uncached > NEGLIGIBLE:
                context = state.view(state.reading.context, drafter)
                if not (yield from self._prefill(state.reading, drafter, context, is_cancelled)):
                    return
                has_more = drafter.n_uncached(context) <= NEGLIGIBLE  # else it never reads all
                n_uncached = drafter.n_uncached(state.view(state.reading.context, drafter)) if has_more else 0
            state.left_out = None
        state.drafters.add(drafter.name)

    def _prefill(
        self, reading: PromptReading, drafter: Drafter, context: Tokens, is_cancelled: Cancelled
    ) -> Generator[None, None, bool]:
        """Prefill the prompt with a drafter, in pieces so that it can be cancelled, and suspended before some. Return
        whether it has read all.
        """
        n, seconds, n_uncached, most = len(context), 0.0, drafter.n_uncached(context), IN_A_ROW / self._plain_rate
        since_pass = most
        for end in [*range(n - n_uncached + PIECE, n, PIECE), n]:
            if since_pass >= most:
                yield
                since_pass = 0.0
            if is_cancelled() or drafter not in self.drafters:
                return False
            began = time.perf_counter()
            drafter.prefill(context[:end], n)
            seconds += (piece := time.perf_counter() - began)
            reading.seconds += piece
            since_pass += piece
        self._controller.states[drafter.name].learn_prefill(n_uncached, seconds)
        return True

    @property
    def _plain_rate(self) -> float:
        """Plain passes per second."""
        return self._controller.valuation.terms.plain_rate

    def drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Drop a drafter that failed."""
        self._set(each for each in self.drafters if each is not drafter)
        drafter.close()
        del self._controller.states[drafter.name]
        self.failed = Reason("draft-error", f"guessing from {described(drafter.name)} failed: {error}")

    def degrade(self, state: DraftingState | None = None, context: Tokens | None = None) -> None:
        """Suspend or restore drafters as memory requires. Drafters that are restored during a reply prefill its
        `context`; `state` is the state of that reply.
        """
        if self.degradation is not None:
            change = self.degradation.update(self.drafters, is_replying=state is not None)
            self._take_change(change, state, context)

    def rest(self) -> bool:
        """Close the draft model or head until a reply finds room for it. Return whether there was one to close."""
        change = self.degradation.rest(self.drafters) if self.degradation else Change()
        self._take_change(change)
        return bool(change.suspended)

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
            state.reading.context = context
            for drafter in state.readers(change.restored):
                with self._guarded(drafter):
                    deque(self._admit(state, drafter), maxlen=0)
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
