"""Reasons why a step was not speculative: a code and a sentence with numbers.

Reads the controller's estimates; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.policy import best_case

Code = Literal["acceptance", "cost", "memory", "draft-error", "exactness", "user", "architecture"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a step was not speculative: a code for programs, a sentence for users."""

    code: Code
    text: str


NONE_ON = Reason("user", "no drafter is switched on")


def why_plain(drafters: Mapping[str, DrafterState], pass_seconds: Sequence[float], plain_rate: float) -> Reason:
    """Return why none of `drafters` (at least one) paid, judged by the one with the highest rate."""
    heard = [name for name, state in drafters.items() if state.acceptance.n_seen or not state.traits.is_model_free]
    if not heard:
        return Reason("acceptance", f"nothing to look up was found by the drafters {', '.join(drafters)}")
    name = max(heard, key=lambda name: drafters[name].rate)
    state = drafters[name]
    _, times = best_case(state.first_seconds, state.rest_seconds, pass_seconds)
    if times <= 1 and not state.traits.is_model_free:
        return Reason("cost", f"drafts cost more than they can save here: at best {times:.2f} times plain decode")
    if state.is_disabled:
        return Reason(
            "cost",
            f"the {name} drafter was slower than plain decode here, although it was right {state.acceptance.rate:.0%} "
            "of the time so far",
        )
    if state.expected_gain > 0:
        return Reason(
            "acceptance", f"the {name} drafter helps where it is sure, but seldom had something worth checking"
        )
    gain = state.rate / plain_rate
    text = (
        f"the {name} drafter was right {state.acceptance.rate:.0%} of the time so far, good for {gain:.2f} times "
        "plain decode at best"
    )
    return Reason("acceptance", text)
