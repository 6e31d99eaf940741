"""A question to a drafter and what it said: answered token by token for the controller, timed, and scored when the
truth has come.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from runtime.core.draft import UNSAID, Draft
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.drafter_state import Scored


class Proposal(NamedTuple):
    """What a drafter said in a step, and how much of it goes to the target."""

    name: str
    said: tuple[int, ...]  # a chain
    confidences: Sequence[float]  # of each token said, and perhaps of one more that was declined unsaid
    draft: Draft  # NO_DRAFT: the rest is only scored
    first_seconds: float
    rest_seconds: float = 0.0
    n_rest: int = 0
    worth: float = 0.0  # tokens that its use brings, as far as is believed

    def score(self, tokens: tuple[int, ...]) -> Scored:
        """Compares it with the tokens that came: what lies beyond them, nobody knows."""
        n_known, n_right = min(len(self.said), len(tokens)), 0
        while n_right < n_known and self.said[n_right] == tokens[n_right]:
            n_right += 1
        return Scored(
            self.name,
            self.confidences,
            n_known,
            n_right,
            self.first_seconds,
            self.rest_seconds,
            self.n_rest,
            bool(self.draft),
        )


class Asking:
    """One question to a drafter that takes its time: answers it for the controller, token by token, and takes the
    times.
    """

    def __init__(self, controller: Controller, name: str) -> None:
        self.controller, self.name, self.chance = controller, name, controller.known[name].acceptance.chance
        self.began, self.first_seconds = time.perf_counter(), 0.0
        self.survival, self.n_drafted = 1.0, 0
        self.confidences: list[float] = []
        self.said: list[int] = []  # the last of both may be one that was declined

    def is_worth_drafting(self) -> bool:
        """Is the next token worth its time?"""
        return self.controller.goes_on(self.name, self.n_drafted, self.survival, self.confidences[-1])

    def go_on(self, confidence: float, token: int = UNSAID) -> bool:
        """Is the next token, of that confidence, worth verifying?"""
        if not self.confidences:
            self.first_seconds = time.perf_counter() - self.began
        self.confidences.append(confidence)
        if token != UNSAID:
            self.said.append(token)
        survival = self.survival * self.chance(confidence)
        if not self.controller.includes(self.name, self.n_drafted, survival, confidence):
            return False
        self.survival, self.n_drafted = survival, self.n_drafted + 1
        return True

    def proposal(self, draft: Draft) -> Proposal:
        """What came of it; under the rejection rule a declined token is not scored, because it is accepted more often
        than it is met.
        """
        seconds = time.perf_counter() - self.began
        first = self.first_seconds or seconds
        said = tuple(self.said) or draft.tokens[: self.n_drafted]
        return Proposal(self.name, said, self.confidences, draft, first, seconds - first, len(self.confidences) - 1)
