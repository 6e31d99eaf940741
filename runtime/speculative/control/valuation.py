"""The value of each drafter and the best decoding rate, which depend on each other.

Knows estimates of drafters and seconds; makes no choice.
"""

from __future__ import annotations

from collections.abc import Collection

from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.passes import Terms
from runtime.speculative.control.policy import Policy, Price
from runtime.speculative.control.tuning import TUNING


class Valuation:
    """The current values of drafters, on the `terms` of the step in which they were computed last."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.rate = terms, 0.0  # tokens per second of the best drafter or plain decode, without lookups
        self.n_passes = self._next = 0.0  # passes so far, and until the next valuation
        self._all = terms  # the terms on which all drafters were valued last
        self._judged: list[DrafterState] | None = None  # those with a policy, then; None: value all in the next step

    def update(self, states: Collection[DrafterState], terms: Terms) -> None:
        """Begin a step on these terms. If it is time or the terms differ, value drafters again."""
        judged = [state for state in states if not state.traits.is_model_free]
        is_same = (terms.limits, judged) == (self._all.limits, self._judged)
        if self.n_passes >= self._next or not is_same:
            self._next = self.n_passes + TUNING.valuation_interval
            values_all = not is_same or costs_differ(terms, self._all)
            if values_all:
                self._all, self._judged = terms, judged
            self.terms, self.rate = terms, value_all(states, terms, self.rate, values_all)
        self.n_passes += 1 / terms.n_together

    def expire(self) -> None:
        """Value the drafters whose estimates changed in the next step."""
        self._next = 0

    def reset(self) -> None:
        """Value all drafters in the next step."""
        self._judged = None

    def gain(self, states: Collection[DrafterState], terms: Terms) -> float:
        """Return the recent speed of the best drafter or plain decode, relative to plain decode."""
        return max([self.rate, *(state.rate for state in states)]) / terms.plain_rate


def costs_differ(terms: Terms, others: Terms) -> bool:
    """Return whether plain passes, or wider ones relative to them, cost clearly more or less than on other terms."""
    costs = (terms.plain_rate, others.plain_rate), (terms.width_cost, others.width_cost)
    return any(abs(now - then) > TUNING.cost_news * then for now, then in costs)


def value_all(states: Collection[DrafterState], terms: Terms, rate: float, values_all: bool) -> float:
    """Value drafters at the best rate of those with a policy, and return that rate; `rate` is its initial estimate.

    All drafters are valued if `values_all`, else lookups and those whose estimates changed.
    """
    rate = max(rate, terms.plain_rate)
    stale = [state for state in states if state.traits.is_model_free or state.has_news or values_all]
    for _ in range(TUNING.rounds):
        for state in stale:
            value(state, terms, rate)
        rates = (state.rate for state in states if not state.traits.is_model_free)
        before, rate = rate, max([terms.plain_rate, *rates])
        if abs(rate / before - 1) < TUNING.settled:
            break
    return rate


def value(state: DrafterState, terms: Terms, rate: float) -> None:
    """Value one drafter; a lookup by its recent gain. Its window rows in a pass are part of its first token's cost."""
    if state.traits.is_model_free:
        state.rate = (1 + state.expected_gain) * terms.plain_rate
        return
    passes = terms.pass_seconds_of(state)
    n_window = min(state.traits.n_window_rows, terms.most)
    window = max(0.0, terms.seconds[n_window] - passes[0]) if n_window else 0.0
    price = Price(state.times.price + window, state.times.rest, terms.overhead)
    state.policy = Policy(state.acceptance, passes, price, rate)
    state.priced_seconds = state.times.price
    state.rate, state.expected_gain = state.policy.rate, state.policy.expected_gain
