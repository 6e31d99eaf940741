"""One step of decoding: choose, propose, forward, verify, learn. Plain decode is the empty draft.

Knows token ids only; which tokens end a reply, and text, are the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.backend import Backend
from runtime.controller import Controller, Reason
from runtime.draft import NO_DRAFT, Budget, Draft, Drafter, Tokens
from runtime.errors import SlipstreamError
from runtime.sampling import Sampler
from runtime.verify import verify


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


class Asking:
    """One question to a drafter: counts survival for the controller and remembers the confidences."""

    def __init__(self, controller: Controller, name: str, max_k: int) -> None:
        self.controller, self.name, self.max_k = controller, name, max_k
        self.survival, self.confidences = 1.0, list[float]()

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

    def __init__(self, backend: Backend, drafters: Sequence[Drafter], controller: Controller) -> None:
        self.backend, self.controller = backend, controller
        self.drafters = sorted(drafters, key=lambda drafter: not drafter.is_free)
        self.failed: Reason | None = None  # set when a drafter broke and was dropped

    def step(self, context: Tokens, sampler: Sampler, position: int, most: int) -> Step:
        """Decodes one to `most` tokens after `context` [n]; `position` is the reply index of the first."""
        began = time.perf_counter()
        self.controller.begin(len(context))
        room = min(self.controller.max_k, most - 1, self.backend.n_ctx - len(context))
        name, draft, confidences = self._propose(context, sampler, position, room)
        drafted = time.perf_counter()
        logits = self.backend.forward(context, draft)
        passed = time.perf_counter()
        verdict = verify(draft, logits, sampler, position)
        self.controller.costs.observe(1 + len(draft), len(context), passed - drafted)
        n_accepted, seconds = len(verdict.accepted), (drafted - began, passed - drafted, time.perf_counter() - began)
        self.controller.learn(name, confidences, n_accepted, *seconds)
        return Step(verdict.tokens, n_accepted, len(draft), name or "none", *seconds)

    def _propose(self, context: Tokens, sampler: Sampler, position: int, room: int) -> tuple[str | None, Draft, list[float]]:
        """The first drafter's proposal that is worth a wider pass: (its name, the draft, the confidence of each token)."""
        for drafter in list(self.drafters) if room > 0 else ():
            if not self.controller.is_worth_asking(drafter.name):
                continue
            asking = Asking(self.controller, drafter.name, room)
            budget = Budget(room, asking.go_on, lambda logits, ahead: sampler.pick(logits, position + ahead))
            try:
                draft = drafter.propose(context, budget)
            except SlipstreamError as error:
                self._drop(drafter, error)
                continue
            if draft:
                return drafter.name, draft, asking.confidences[: len(draft)]
        return None, NO_DRAFT, []

    def _drop(self, drafter: Drafter, error: SlipstreamError) -> None:
        """Goes on without a drafter that broke."""
        self.drafters.remove(drafter)
        drafter.close()
        self.controller.drop(drafter.name)
        self.failed = Reason("draft-error", f"the {drafter.name} drafter failed: {error}")

    def why_plain(self) -> Reason:
        """Why the last step was plain."""
        return self.failed or self.controller.reason()
