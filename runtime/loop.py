"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtime.backend import Backend
from runtime.controller import Controller, Reason, Scored
from runtime.draft import Budget, Draft, Drafter, Tokens, merge
from runtime.errors import SettingsError, SlipstreamError
from runtime.logits import TokenLogprobs, logprobs
from runtime.sampling import Sampler
from runtime.verify import verify

PIECE = 256  # tokens that a drafter takes in between two looks at whether to go on
IN_PASSING = 64  # missing tokens that are not worth a thought


@dataclass(frozen=True, slots=True)
class Step:
    """What one target pass brought."""

    tokens: tuple[int, ...]
    n_accepted: int  # of them from the draft; the last token is always the target's own
    n_drafted: int
    drafter: str  # "none" for plain decode
    draft_seconds: float
    verify_seconds: float  # the target's pass
    seconds: float  # the whole step
    logprobs: tuple[TokenLogprobs, ...] = ()  # one per token, where they were asked for


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter said in a step, and how much of it goes to the target."""

    name: str
    said: tuple[int, ...]  # a chain
    confidences: list[float]  # of each token said
    draft: Draft  # NO_DRAFT: the rest is only scored
    seconds: float
    was_open: bool  # was none used before it?

    def score(self, tokens: tuple[int, ...]) -> Scored:
        """Compares it with the tokens that came: what lies beyond them, nobody knows."""
        n_right = next((i for i, (said, came) in enumerate(zip(self.said, tokens, strict=False)) if said != came), min(len(self.said), len(tokens)))
        return Scored(self.name, self.confidences[: len(tokens)], n_right, len(self.said), self.seconds, bool(self.draft), self.was_open)


class Asking:
    """One question to a drafter: counts survival for the controller and remembers the confidences."""

    def __init__(self, controller: Controller, name: str, max_k: int) -> None:
        self.controller, self.name, self.max_k = controller, name, max_k
        self.survival, self.confidences = 1.0, list[float]()

    def is_worth_drafting(self) -> bool:
        """Is the next token worth its time?"""
        return self.controller.is_worth_drafting(self.name, self.survival, len(self.confidences), self.max_k)

    def go_on(self, confidence: float) -> bool:
        """Is the next token, of that confidence, worth drafting?"""
        controller, depth = self.controller, len(self.confidences)
        if not controller.goes_on(self.name, self.survival, depth, confidence, self.max_k):
            return False
        self.survival *= controller.known[self.name].calibrated(confidence)
        self.confidences.append(confidence)
        return True


class SpecLoop:
    """A target, the drafters offered to it in order of cost, and the controller that chooses among them."""

    def __init__(self, backend: Backend, drafters: Sequence[Drafter], controller: Controller, branches: int = 0) -> None:
        self.backend, self.controller = backend, controller
        self.branches = branches if backend.can_branch else 0  # side branches per drafted token; all proposals then form one tree
        self.drafters = sorted(drafters, key=lambda drafter: not drafter.is_free)
        self.failed: Reason | None = None  # set when a drafter broke and was dropped
        self.resting: Reason | None = None  # set when a drafter does not take part in this reply
        self._takes_part: set[str] = {drafter.name for drafter in drafters}

    def prepare(self, context: Tokens, n_reply: int, is_cancelled: Callable[[], bool]) -> None:
        """Before a reply of about `n_reply` tokens: drafters take the prompt in where that will repay itself; the others rest until the next."""
        self.resting, self._takes_part = None, {drafter.name for drafter in self.drafters}
        self.controller.begin(len(context))
        for drafter in list(self.drafters):
            n_missing = drafter.n_missing(context)
            if n_missing <= IN_PASSING:
                continue
            if self.controller.repays(drafter.name, n_missing, n_reply):
                self._take_in(drafter, context, n_missing, is_cancelled)
            else:
                self._takes_part.remove(drafter.name)
                self.resting = Reason("cost", f"the {drafter.name} drafter would have to read {n_missing} tokens, more than this reply repays")

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
            self.controller.learn_prefill(drafter.name, n_missing, time.perf_counter() - began)

    def step(self, context: Tokens, sampler: Sampler, position: int, most: int, n_logprobs: int | None = None) -> Step:
        """Decodes one to `most` tokens after `context` [n]; its last `position` tokens are the reply's."""
        began = time.perf_counter()
        self.controller.begin(len(context))
        sampler.begin(context, position)
        room = min(self.controller.max_k, most - 1, self.backend.n_ctx - len(context))
        proposals = self._propose(context, sampler, room)
        used = [proposal for proposal in proposals if proposal.draft]
        draft = merge([proposal.draft for proposal in used]).first(room)
        drafted = time.perf_counter()
        logits = self.backend.forward(context, draft)
        passed = time.perf_counter()
        verdict = verify(draft, logits, sampler)
        said = logprobs(logits[[0, *(node + 1 for node in verdict.accepted)]], verdict.tokens, n_logprobs) if n_logprobs is not None else ()
        self.controller.costs.observe(1 + len(draft), len(context), passed - drafted)
        seconds = drafted - began, passed - drafted, time.perf_counter() - began
        self.controller.learn([proposal.score(verdict.tokens) for proposal in proposals], 1 + len(verdict.accepted), *seconds)
        name = "+".join(proposal.name for proposal in used) or "none"
        return Step(verdict.tokens, len(verdict.accepted), len(draft), name, *seconds, said)

    def _propose(self, context: Tokens, sampler: Sampler, room: int) -> list[Proposal]:
        """What the drafters say: one proposal that is worth a wider pass (all of them for a tree), and others only to be scored."""
        proposals: list[Proposal] = []
        for drafter in list(self.drafters) if room > 0 else ():
            is_open = self.branches > 0 or not any(proposal.draft for proposal in proposals)
            if drafter.name in self._takes_part and (drafter.is_free or (is_open and self.controller.is_worth_asking(drafter.name))):
                try:
                    proposal = self._ask(drafter, context, sampler, room, is_open)
                except SettingsError:
                    continue  # the grammar or a bias, not the drafter: if the target comes there too, it will say so
                except SlipstreamError as error:
                    self._drop(drafter, error)
                else:
                    proposals.append(proposal)
        return proposals

    def _ask(self, drafter: Drafter, context: Tokens, sampler: Sampler, room: int, is_open: bool) -> Proposal:
        """A free drafter says all it can, and only then is decided how much of it to use; others stop when it no longer pays."""
        began, asking = time.perf_counter(), Asking(self.controller, drafter.name, room)
        if not drafter.is_free:
            draft = drafter.propose(context, Budget(room, asking.go_on, sampler.pick, asking.is_worth_drafting, self.branches))
            n = min(len(draft), len(asking.confidences))
            return Proposal(drafter.name, draft.tokens[:n], asking.confidences[:n], draft, time.perf_counter() - began, is_open)
        confidences: list[float] = []

        def note(confidence: float) -> bool:
            confidences.append(confidence)
            return True

        said = drafter.propose(context, Budget(room, note, sampler.pick, forced=sampler.forced))
        seconds, confidences = time.perf_counter() - began, confidences[: len(said)]
        k = next((k for k, confidence in enumerate(confidences) if not asking.go_on(confidence)), len(confidences)) if is_open else 0
        return Proposal(drafter.name, said.tokens, confidences, said.first(k), seconds, is_open)

    def _drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Goes on without a drafter that broke."""
        self.drafters.remove(drafter)
        drafter.close()
        self.controller.drop(drafter.name)
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def why_plain(self) -> Reason:
        """Why the last step was plain."""
        return self.failed or self.resting or self.controller.reason()
