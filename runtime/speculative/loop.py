"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, UNSAID, Budget, Drafter, Tokens, merge
from runtime.core.errors import SettingsError, SlipstreamError
from runtime.sampling.logits import TokenLogprobs, logprobs
from runtime.sampling.sampler import Sampler
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.reasons import Reason
from runtime.speculative.control.threads import Threads
from runtime.speculative.stopping import Asking, Proposal
from runtime.speculative.verify import verify

PIECE = 256  # tokens that a drafter takes in between two looks at whether to go on
IN_PASSING = 64  # missing tokens that are not worth a thought
Ask = Callable[[Drafter, Tokens, Sampler, int], "Proposal"]


class Step(NamedTuple):
    """What one target pass brought."""

    tokens: tuple[int, ...]
    n_accepted: int  # of them from the draft; the last token is always the target's own
    n_drafted: int
    drafter: str  # "none" for plain decode
    draft_seconds: float
    verify_seconds: float  # the target's pass
    seconds: float  # the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for


@dataclass(slots=True)
class Part:
    """What a reply has of the loop to itself: several may be made in turns."""

    n_reply: int = 0  # tokens that it is expected to have
    drafters: set[str] = field(default_factory=set)  # that take part in it
    resting: Reason | None = None  # set when a drafter does not


class SpecLoop:
    """A target, the drafters offered to it in order of cost, and the controller that chooses among them."""

    def __init__(
        self,
        backend: Backend,
        drafters: Sequence[Drafter],
        controller: Controller,
        branches: int = 0,
        threads: Threads | None = None,
    ) -> None:
        self.backend, self.controller, self.threads = backend, controller, threads
        # Side branches per drafted token; all proposals then form one tree
        self.branches = branches if backend.can_branch else 0
        self.drafters = list(drafters)
        self.failed: Reason | None = None  # set when a drafter broke and was dropped
        self.short: Reason | None = (
            None  # set when drafters were given up for want of memory, during this reply or before
        )
        self.memory_level = "OK"  # how short memory is, as far as the drafters are kept to it
        # Looks at the memory before each step; may take drafters away, and back
        self.watch: Callable[[Tokens], None] = lambda context: None
        self.part = Part(drafters={drafter.name for drafter in drafters})  # of the reply that is being made
        self.switch_seconds = 0.0  # that the last change from one reply to another took

    def prepare(self, context: Tokens, n_reply: int, is_cancelled: Callable[[], bool]) -> None:
        """Before a reply of about `n_reply` tokens: drafters take the prompt in where that will repay itself; the
        others rest until the next.
        """
        self.short, self.part = None, Part(n_reply)
        self.controller.begin(len(context))
        for drafter in list(self.drafters):
            self.admit(drafter, context, is_cancelled)

    def admit(self, drafter: Drafter, context: Tokens, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Lets a drafter take part in the reply, unless what it has to take in for that does not repay itself."""
        self.part.drafters.add(drafter.name)
        n_missing = drafter.n_missing(context)
        if n_missing <= IN_PASSING:
            return
        if self.controller.repays(drafter.name, n_missing, self.part.n_reply):
            self._take_in(drafter, context, n_missing, is_cancelled)
        else:
            self.part.drafters.remove(drafter.name)
            self.part.resting = Reason(
                "cost", f"the {drafter.name} drafter would have to read {n_missing} tokens, more than this reply repays"
            )

    def _take_in(self, drafter: Drafter, context: Tokens, n_missing: int, is_cancelled: Callable[[], bool]) -> None:
        """In pieces, so that it can be cancelled."""
        began, n = time.perf_counter(), len(context)
        try:
            for end in [*range(n - n_missing + PIECE, n, PIECE), n]:
                if is_cancelled():
                    return
                drafter.take_in(context[:end])
        except SlipstreamError as error:
            self._drop(drafter, error)
        else:
            self.controller.known[drafter.name].learn_prefill(n_missing, time.perf_counter() - began)

    def resume(self, part: Part, context: Tokens) -> None:
        """The reply with that `part` goes on.

        What was kept of it comes back here, so that no step's time has that in it.
        """
        if part is self.part:
            return
        began, self.part = time.perf_counter(), part
        self.backend.recall(context)
        for drafter in list(self.drafters):
            if drafter.name in part.drafters:
                drafter.recall(context)
        self.switch_seconds = time.perf_counter() - began

    def step(self, context: Tokens, sampler: Sampler, position: int, most: int, n_logprobs: int | None = None) -> Step:
        """Decodes one to `most` tokens after `context` [n]; its last `position` tokens are the reply's."""
        self.watch(context)
        began = time.perf_counter()
        self.controller.begin(len(context), sampler.is_coupled)
        sampler.begin(context, position)
        room = min(self.controller.max_k, most - 1, self.backend.n_ctx - len(context))
        proposals = self._propose(context, sampler, room)
        used = [proposal for proposal in proposals if proposal.draft]
        draft = merge([proposal.draft for proposal in used]).first(room)
        drafted = time.perf_counter()
        if self.threads:
            self.threads.set()
        logits = self.backend.forward(context, draft)
        passed = time.perf_counter()
        verdict = verify(draft, logits, sampler)
        for drafter in self.drafters:
            drafter.observe(draft, logits)
        said = (
            logprobs(logits[[0, *(node + 1 for node in verdict.accepted)]], verdict.tokens, n_logprobs)
            if n_logprobs is not None
            else ()
        )
        name = "+".join(proposal.name for proposal in used) or "none"
        seconds = drafted - began, passed - drafted, time.perf_counter() - began
        self.controller.learn(
            [proposal.score(verdict.tokens) for proposal in proposals], 1 + len(verdict.accepted), *seconds
        )
        if draft or self.controller.is_steady:
            self._learn_cost(name, 1 + len(draft), len(context), passed - drafted)
        return Step(verdict.tokens, len(verdict.accepted), len(draft), name, *seconds, said)

    def _learn_cost(self, drafter: str, width: int, n_context: int, seconds: float) -> None:
        """Of a pass; one that tried another number of threads says nothing about the next, unless that number was
        taken.
        """
        change: float | None = 1.0
        if self.threads:
            expected = self.controller.costs_of(drafter, width).seconds(width, n_context)
            change = self.threads.of(width).observe(width, seconds, expected)
        if change == 1.0:
            self.controller.learn_pass(drafter, width, n_context, seconds)
        elif change is not None:
            self.controller.scale((lambda w: w == 1) if width == 1 else (lambda w: w > 1), change)

    def _propose(self, context: Tokens, sampler: Sampler, room: int) -> list[Proposal]:
        """What the drafters say: one proposal that is worth a wider pass (all of them for a tree), and others only to
        be scored.
        """
        proposals: list[Proposal] = []
        if room <= 0:
            return proposals
        asked = [drafter for drafter in self._in_order() if drafter.name in self.part.drafters]
        for drafter in asked:
            if drafter.is_free and self.controller.is_worth_asking(drafter.name):
                proposals += self._ask(self._look_up, drafter, context, sampler, room)
        if proposals and not self.branches:
            best = max(proposals, key=lambda proposal: proposal.worth)
            proposals = [each if each is best else each._replace(draft=NO_DRAFT) for each in proposals]
        for drafter in asked:
            is_open = self.branches > 0 or not any(proposal.draft for proposal in proposals)
            if is_open and not drafter.is_free and self.controller.is_worth_asking(drafter.name):
                proposals += self._ask(self._think, drafter, context, sampler, room)
        return proposals

    def _in_order(self) -> list[Drafter]:
        """The drafters that promise most first."""
        return sorted(self.drafters, key=lambda drafter: -self.controller.known[drafter.name].surplus)

    def _ask(self, how: Ask, drafter: Drafter, context: Tokens, sampler: Sampler, room: int) -> list[Proposal]:
        """A proposal, or none from a drafter that broke."""
        try:
            return [how(drafter, context, sampler, room)]
        except SettingsError:
            return []  # the grammar or a bias, not the drafter: if the target comes there too, it will say so
        except SlipstreamError as error:
            self._drop(drafter, error)
            return []

    def _think(self, drafter: Drafter, context: Tokens, sampler: Sampler, room: int) -> Proposal:
        """Token by token, until it no longer pays."""
        if self.threads:
            self.threads.set()
        asking = Asking(self.controller, drafter.name)
        draft = drafter.propose(
            context, Budget(room, asking.go_on, sampler.pick, asking.is_worth_drafting, self.branches)
        )
        proposal, known = asking.proposal(draft), self.controller.known[drafter.name]
        if self.threads and proposal.n_rest and drafter.has_passes:
            change = self.threads.draft.observe(1, proposal.rest_seconds / proposal.n_rest, known.rest_seconds)
            known.scale(change or 1.0)
        return proposal

    def _look_up(self, drafter: Drafter, context: Tokens, sampler: Sampler, room: int) -> Proposal:
        """A free drafter says all it can, and only then is decided how much of it to use: of a tree, all that is as
        likely as the trunk.
        """
        confidences: list[float] = []
        began = time.perf_counter()

        def note(confidence: float, token: int = UNSAID) -> bool:
            confidences.append(confidence)
            return True

        said = drafter.propose(context, Budget(room, note, sampler.pick, branches=self.branches, forced=sampler.forced))
        trunk = range(len(said)) if said.parents is None else said.trunk()
        confidences = confidences[: len(trunk)]
        k, worth = self.controller.length(drafter.name, confidences)
        draft, tokens = (
            said.first(trunk[k - 1] + 1 if k else 0),
            tuple(said.tokens[node] for node in trunk[: len(confidences)]),
        )
        return Proposal(drafter.name, tokens, confidences, draft, time.perf_counter() - began, worth=worth)

    def _drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Goes on without a drafter that broke."""
        self.drafters.remove(drafter)
        drafter.close()
        self.controller.drop(drafter.name)
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def why_plain(self) -> Reason:
        """Why the last step was plain."""
        return self.short or self.failed or self.part.resting or self.controller.reason()
