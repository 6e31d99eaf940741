"""Synthetic traces of acceptance and their replay through the controller, without a model or a clock.

A trace has for every position of a text the drafter's confidence in its token there and whether the target agrees. All
times are the trace's own. Used by tests and by the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bench.instruments.toy import Clock
from runtime.core.drafter import NO_DRAFTER, Answer, Traits
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.decision import SKIP, Choice
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.explain import kept, restore
from runtime.speculative.control.passes import Terms

MAX_K = 8
NAME = "model"


@dataclass(frozen=True, slots=True)
class Trace:
    """Positions in a text, and the costs of passes and drafts there, in seconds."""

    name: str
    confidences: Sequence[float]
    # Probabilities of acceptance, if known; otherwise estimated from the outcomes of similar confidences
    chances: Sequence[float]
    agrees: Sequence[bool]
    passes: Sequence[float]  # by width - 1
    first: float
    rest: float
    hidden: float = 1.0  # factor on the seconds of a step with a draft that nobody measures

    def run(self, place: int, most: int = MAX_K) -> int:
        """Return the number of tokens from `place` on that the target would accept."""
        return next(
            (k for k, agrees in enumerate(self.agrees[place : place + most]) if not agrees),
            min(most, len(self.agrees) - place),
        )

    def draft_seconds(self, n_thought: int) -> float:
        """Return the seconds of `n_thought` draft tokens, the declined included."""
        return self.first + (n_thought - 1) * self.rest if n_thought else 0.0

    def step_seconds(self, n_thought: int, k: int) -> float:
        """Return the seconds of a step with `n_thought` draft tokens, of which `k` are verified."""
        return (self.draft_seconds(n_thought) + self.passes[k]) * (self.hidden if k else 1.0)

    def pass_seconds(self, width: int) -> float:
        """Return the seconds of a pass of `width` rows, also for several replies."""
        wider = max(0, width - len(self.passes))
        return self.passes[width - wider - 1] + wider * (self.passes[-1] - self.passes[0]) / (len(self.passes) - 1)

    @property
    def plain_seconds(self) -> float:
        """Seconds of the whole text without drafts."""
        return len(self.agrees) * self.passes[0]


class Proposed(NamedTuple):
    """The drafter's confidences at a position, and the number of tokens to verify."""

    confidences: Sequence[float]  # confidences
    k: int
    terms: Terms
    choice: Choice


def propose(controller: Controller, terms: Terms, trace: Trace, place: int, room: int = MAX_K) -> Proposed:
    """Return the controller's proposal at a position, in a step on these terms."""
    most, k = min(controller.max_k, room, len(trace.agrees) - place - 1), 0
    choice = controller.choose(terms, NAME) if most > 0 else Choice(SKIP)
    clock = controller.passes.clock = Clock()
    criterion = controller.criterion(NAME, choice)
    while choice.decision.asks and k < most:
        clock.advance(trace.rest if criterion.confidences else trace.first)
        answer = criterion.should_continue(trace.confidences[place + k])
        k += bool(answer)
        if answer is not Answer.CONTINUE:
            break
    return Proposed(criterion.confidences, k, terms, choice)


def learn(
    controller: Controller,
    trace: Trace,
    place: int,
    proposed: Proposed,
    draft: float,
    verify: float,
    total: float | None = None,
) -> int:
    """Report the outcome and its times to the controller; return the number of generated tokens. `total` are the
    seconds of the whole step, if they are more than its parts.
    """
    confidences, k, terms, choice = proposed
    right, n_rest = min(k, trace.run(place)), max(0, len(confidences) - 1)
    rest = draft * n_rest * trace.rest / max(trace.draft_seconds(len(confidences)), 1e-12)
    n_known = min(len(confidences), right + 1)
    agreed = trace.run(place, n_known)
    outcome = DraftOutcome(NAME, confidences, n_known, agreed, draft - rest, rest, n_rest, k)
    outcomes = [outcome] if choice.decision.asks else []
    controller.learn(terms, {NAME: choice}, outcomes, right + 1, draft, verify, total or draft + verify)
    return right + 1


def step(controller: Controller, trace: Trace, place: int) -> tuple[int, float]:
    """Run one step of the controller at a position; return (generated tokens, seconds)."""
    proposed = propose(controller, controller.begin(0), trace, place)
    draft, verify = trace.draft_seconds(len(proposed.confidences)), trace.passes[proposed.k]
    total = trace.step_seconds(len(proposed.confidences), proposed.k)
    came = learn(controller, trace, place, proposed, draft, verify, total)
    if proposed.k or controller.plain_passes.is_steady:
        controller.passes.learn(NAME if proposed.k else NO_DRAFTER, 1 + proposed.k, 0, verify)
    return came, total


def controller_for(trace: Trace, max_k: int = MAX_K) -> Controller:
    """Return a controller as after loading: costs are measured, nothing else is known."""
    costs = PassCosts()
    for width, seconds in enumerate(trace.passes[: max_k + 1], start=1):
        costs.set(width, seconds)
    return Controller(costs, {NAME: Traits(trace.rest)}, max_k)


def adaptive(trace: Trace, controller: Controller | None = None) -> float:
    """Return the seconds of the whole text."""
    controller, place, total = controller or controller_for(trace), 0, 0.0
    while place < len(trace.agrees):
        came, seconds = step(controller, trace, place)
        place, total = place + came, total + seconds
    return total


def fixed(trace: Trace, k: int) -> float:
    """Return the seconds with always `k` draft tokens."""
    place, total = 0, 0.0
    while place < len(trace.agrees):
        total += trace.step_seconds(k, k)
        place += 1 + min(k, trace.run(place))
    return total


@dataclass(frozen=True, slots=True)
class World:
    """Successive texts; if it `restarts`, each in a process that loads the state stored by the last one."""

    name: str
    traces: Sequence[Trace]
    restarts: bool = False

    def lived(self) -> float:
        """Return the seconds of all texts under the controller."""
        controller, total = controller_for(self.traces[0]), 0.0
        for trace in self.traces:
            if self.restarts:
                known, controller = kept(controller), controller_for(trace)
                restore(controller, known)
            total += adaptive(trace, controller)
        return total


Law = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]  # length -> (confidences, chances)


def unsure(chance: float) -> Law:
    """Return a law for a drafter whose confidence is uninformative."""
    return lambda n, rng: (np.full(n, 0.85), np.full(n, chance))


def informed(mean: float, noise: float = 0.05) -> Law:
    """Return a law with confidence near the probability of acceptance, which is constant over stretches."""

    def law(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        levels = rng.beta(3 * mean, 3 * (1 - mean), size=n // 6 + 1).repeat(6)[:n]
        return np.clip(levels + rng.normal(0, noise, n), 0.01, 0.999), levels

    return law


def collapsing(before: float, after: float) -> Law:
    """Return a law in which the acceptance rate changes within the text, but the confidence does not."""
    return lambda n, rng: (np.full(n, 0.85), np.concatenate([np.full(n // 2, before), np.full(n - n // 2, after)]))


LAWS = {f"unsure {chance}": unsure(chance) for chance in (0.1, 0.3, 0.5, 0.7, 0.9)}
LAWS |= {f"informed {mean}": informed(mean) for mean in (0.3, 0.5, 0.7, 0.9)}
LAWS |= {"0.9, then 0.1": collapsing(0.9, 0.1), "0.1, then 0.9": collapsing(0.1, 0.9)}


def made_up(law: Law, costs: tuple[Sequence[float], float, float], n: int, seed: int, name: str = "") -> Trace:
    """Return a trace of `n` positions by a law, with the costs (milliseconds) of a machine."""
    rng = np.random.default_rng(seed)
    confidences, chances = law(n, rng)
    passes, first, rest = costs
    agrees = (rng.random(n) < chances).tolist()
    return Trace(
        name, confidences.tolist(), chances.tolist(), agrees, [1e-3 * t for t in passes], 1e-3 * first, 1e-3 * rest
    )
