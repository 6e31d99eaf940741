"""Computes the value of each drafter and the best decoding rate, which depend on each other.

Knows estimates of drafters and seconds; makes no choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.policy import Policy, Price
from runtime.speculative.control.tuning import TUNING


@dataclass(frozen=True, slots=True)
class Market:
    """Current costs of passes and of a token outside models, and the rate of plain decode."""

    pass_seconds: list[float]  # [k + 1] by width - 1
    n_context: int
    overhead: float  # seconds per token outside models
    plain_rate: float  # tokens per second
    surcharged: Callable[[Sequence[float]], list[float]] = list  # adds the surcharges of passes with drafts

    def pass_seconds_of(self, state: DrafterState) -> list[float]:
        """Return the seconds of passes over the tokens of a drafter with a policy, by width - 1, up to the policy's
        depth. A plain pass costs the same for all drafters.
        """
        passes = self.pass_seconds[: TUNING.policy_depth + 1]
        if state.costs is None:
            return passes
        return self.surcharged([passes[0], *state.costs.up_to(len(passes), self.n_context)[1:]])


def value_all(states: Collection[DrafterState], market: Market, rate: float, is_time: bool) -> float:
    """Value drafters at the best rate of those with a policy, and return that rate; `rate` is its initial estimate.

    All drafters are valued if `is_time`, else lookups and those whose estimates changed.
    """
    rate = max(rate, market.plain_rate)
    stale = [state for state in states if state.traits.is_model_free or state.has_news or is_time]
    for _ in range(TUNING.rounds):
        for state in stale:
            value(state, market, rate)
        rates = (state.rate for state in states if not (state.is_disabled or state.traits.is_model_free))
        before, rate = rate, max([market.plain_rate, *rates])
        if abs(rate / before - 1) < TUNING.settled:
            break
    return rate


def value(state: DrafterState, market: Market, rate: float) -> None:
    """Value one drafter; a lookup by its recent gain. Its window rows in a pass are part of its first token's cost."""
    if state.traits.is_model_free:
        state.rate = (1 + state.expected_gain) * market.plain_rate
        return
    widest = len(market.pass_seconds) - 1
    window = max(0.0, market.pass_seconds[min(state.traits.n_window_rows, widest)] - market.pass_seconds[0])
    price = Price(state.first_seconds + window, state.rest_seconds, market.overhead)
    state.policy = Policy(state.acceptance, market.pass_seconds_of(state), price, rate)
    state.priced_seconds = state.first_seconds
    state.rate, state.expected_gain = state.policy.rate, state.policy.expected_gain
