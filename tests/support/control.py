"""Scripted times and outcomes for the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from bench.instruments.traces import LAWS, NAME, Trace, made_up, unsure
from runtime.core.drafter import Answer
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from runtime.speculative.control.decision import LOOK_UP, USE, Choice
from runtime.speculative.control.drafter_state import DraftOutcome
from runtime.speculative.control.passes import Terms


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
    return DraftOutcome(NAME, [confidence] * n, min(n, n_right + 1), n_right, seconds, 0.0, n - 1, n * is_used)


TERMS: WeakKeyDictionary[Controller, Terms] = WeakKeyDictionary()  # of the step that was begun last
CHOICES: WeakKeyDictionary[Controller, dict[str, Choice]] = WeakKeyDictionary()  # the choices in it


def begin(controller: Controller, n_context: int, **limits: Any) -> Terms:
    """Begin a step, which the functions below continue."""
    TERMS[controller], CHOICES[controller] = controller.begin(n_context, **limits), {}
    return TERMS[controller]


def terms_of(controller: Controller) -> Terms:
    """Return the terms of the step that was begun last; begin one if there is none."""
    return TERMS.get(controller) or begin(controller, 0)


def asks(controller: Controller, name: str) -> bool:
    """Return whether the drafter is asked in this step."""
    terms = terms_of(controller)
    choice = CHOICES[controller][name] = controller.choose(terms, name)
    return choice.decision.asks


def length(controller: Controller, name: str, confidences: Sequence[float]) -> tuple[int, float]:
    """Return the length of a lookup's draft in this step, and its gain."""
    return controller.length(terms_of(controller), name, confidences)


def learn(controller: Controller, outcomes: Sequence[DraftOutcome], n_tokens: int, *seconds: float) -> None:
    """End a step: what proposed without having been asked counts as used."""
    terms = terms_of(controller)
    asked = {each.name: USE if each.name == NAME else LOOK_UP for each in outcomes}
    choices = {name: Choice(decision) for name, decision in asked.items()} | CHOICES[controller]
    controller.learn(terms, choices, outcomes, n_tokens, *seconds)
    CHOICES[controller] = {}


def n_unasked(controller: Controller, name: str) -> int:
    """Return the number of next steps in which the drafter will not be asked."""
    return controller.n_unasked(terms_of(controller), name)


def n_taken(controller: Controller, name: str, confidence: float, most: int = 8) -> int:
    """Return how many tokens of that confidence a proposal may have."""
    terms_of(controller)
    choice = CHOICES[controller].get(name, Choice(USE))
    criterion, n = controller.criterion(name, choice), 0
    while n < most and (answer := criterion.should_continue(confidence)):
        n += 1
        if answer is Answer.LAST:
            break
    return n
