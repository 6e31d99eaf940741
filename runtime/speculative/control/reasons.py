"""Reasons why a step was not speculative: a code and a sentence with numbers.

Reads the controller's estimates; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.policy import best_case
from runtime.speculative.control.tuning import TUNING

Code = Literal["acceptance", "cost", "memory", "draft-error", "exactness", "user", "architecture"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a step was not speculative: a code for programs, a sentence for users."""

    code: Code
    text: str


NONE_ON = Reason("user", "no drafter is enabled")


def why_plain(drafters: Mapping[str, DrafterState], pass_seconds: Sequence[float], plain_rate: float) -> Reason:
    """Return why none of `drafters` (at least one) paid, judged by the one with the highest rate."""
    scored = [name for name, state in drafters.items() if state.acceptance.n_seen or not state.traits.is_model_free]
    if not scored:
        return Reason("acceptance", f"the drafters {', '.join(drafters)} found nothing to propose")
    name = max(scored, key=lambda name: drafters[name].rate)
    state = drafters[name]
    _, times = best_case(state.times.price, state.times.rest, pass_seconds)
    if times <= 1 and not state.traits.is_model_free:
        return Reason("cost", f"drafts cost more than they can save here: at best {times:.2f} times plain decode")
    is_known, rate = state.acceptance.n_seen >= TUNING.few_tokens, state.acceptance.rate
    if state.expected_gain > 0:
        return Reason(
            "acceptance", f"the {name} drafter helps where it is confident, but rarely had a draft worth verifying"
        )
    if not is_known:
        return Reason("acceptance", f"the {name} drafter has proposed too few tokens to judge yet")
    gain = state.rate / plain_rate
    text = f"{rate:.0%} of the {name} drafter's draft tokens were accepted, at best {gain:.2f} times plain decode"
    return Reason("acceptance", text)
