"""Reasons why a step was not speculative: a code and a sentence with numbers.

Reads the controller's estimates; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runtime.drafters.registry import described
from runtime.speculative.control.drafter_state import DrafterState
from runtime.speculative.control.policy import best_case
from runtime.speculative.control.tuning import TUNING

Code = Literal["acceptance", "cost", "memory", "draft-error", "exactness", "user", "architecture"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why a step was not speculative: a code for programs, a sentence for users."""

    code: Code
    text: str


NONE_ON = Reason("user", "guessing ahead is switched off")


def why_plain(drafters: Mapping[str, DrafterState], pass_seconds: Sequence[float], plain_rate: float) -> Reason:
    """Return why none of `drafters` (at least one) paid, judged by the one with the highest rate."""
    scored = [name for name, state in drafters.items() if state.acceptance.n_seen or not state.traits.is_model_free]
    if not scored:
        return Reason("acceptance", f"no guess came from {listed(drafters)}")
    name = max(scored, key=lambda name: drafters[name].rate)
    state = drafters[name]
    _, times = best_case(state.times.price, state.times.rest, pass_seconds)
    if times <= 1 and not state.traits.is_model_free:
        return Reason("cost", f"drafts cost more than they can save here: at best {times:.2f} times plain decode")
    return Reason("acceptance", judged(described(name), state, plain_rate))


def judged(source: str, state: DrafterState, plain_rate: float) -> str:
    """Return why guesses from that source did not pay."""
    if state.expected_gain > 0:
        return f"guesses from {source} help, but few were sure enough to be checked"
    if state.acceptance.n_seen < TUNING.few_tokens:
        return f"too few guesses from {source} are known yet to judge them"
    gain = state.rate / plain_rate
    return f"{state.acceptance.rate:.0%} of the guesses from {source} were right, at best {gain:.2f} times plain decode"


def listed(drafters: Iterable[str]) -> str:
    """Return the descriptions of drafters as an enumeration."""
    *others, last = map(described, drafters)
    return f"{', '.join(others)} or {last}" if others else last
