"""Scripted times and outcomes for the controller."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from bench.instruments.traces import LAWS, NAME, Trace, made_up, unsure
from runtime.core.drafter import Answer
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.decision import Choice, Decision
from runtime.speculative.control.drafter_state import DraftOutcome


def costs_of(*seconds: float) -> PassCosts:
    costs = PassCosts()
    for width, each in enumerate(seconds, start=1):
        costs.set(width, each)
    return costs


# Milliseconds by width: Llama-3.2-1B's shape on two CPU cores
PASSES = (46, 67, 79, 82, 129, 132, 138, 143, 150)
# With the milliseconds of a first and of a further drafted token
CHEAP, SLOW = (PASSES, 5.0, 4.0), (PASSES, 50.0, 46.0)
# 135M parameters there: only long drafts pay that are nearly always right
STEEP = ((9.4, 17.6, 23.1, 23.3, 24.7, 26.2, 28.4, 30.6, 34.4), 3.2, 3.2)


def trace(law: str | float, costs: tuple[Sequence[float], float, float] = CHEAP, n: int = 1000, seed: int = 1) -> Trace:
    return made_up(LAWS[law] if isinstance(law, str) else unsure(law), costs, n, seed)


def said(
    controller: Controller, confidence: float, n: int, n_right: int, is_used: bool = True, seconds: float = 0.004
) -> DraftOutcome:
    confidences, is_probe = [confidence] * n, chosen(controller).decision is Decision.PROBE
    return DraftOutcome(NAME, confidences, min(n, n_right + 1), n_right, seconds, 0.0, n - 1, is_used, 0.0, is_probe)


CHOICES: WeakKeyDictionary[Controller, Choice] = WeakKeyDictionary()  # the last one of each


def chosen(controller: Controller) -> Choice:
    """Return the last choice, or to ask where none was made."""
    return CHOICES.get(controller, Choice(Decision.USE))


def asks(controller: Controller, name: str) -> bool:
    """Return whether the drafter is asked in this step."""
    CHOICES[controller] = controller.choose(name)
    return CHOICES[controller].decision.asks


def n_taken(controller: Controller, name: str, confidence: float, most: int = 8) -> int:
    """Return how many tokens of that confidence a proposal may have."""
    criterion, n = controller.criterion(name, chosen(controller)), 0
    while n < most and (answer := criterion.should_continue(confidence)):
        n += 1
        if answer is Answer.LAST:
            break
    return n
