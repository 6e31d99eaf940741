"""Decides whether a draft pays with the costs of passes here, and from which share of accepted draft tokens on.

Pure arithmetic by the controller's own measure: tokens of a step per second.
"""

from __future__ import annotations

from collections.abc import Sequence

GAIN = 1.03  # minimum speed relative to plain decode for keeping a draft
HALVINGS = 30


def gain(shares: Sequence[float], drafted: float, passes: Sequence[float]) -> float:
    """Return the speed relative to plain decode with the best number of draft tokens; 1 if none pays.

    `shares` are the acceptance probabilities of each draft token, given those before it; `drafted` the seconds of one;
    `passes` the seconds of target passes over 1, 2, ... rows.
    """
    best, expected, survives = 1.0, 1.0, 1.0
    for k, (share, seconds) in enumerate(zip(shares, passes[1:], strict=False), 1):
        survives *= share
        expected += survives
        best = max(best, expected * passes[0] / (k * drafted + seconds))
    return best


def break_even(drafted: float, passes: Sequence[float], wanted: float = GAIN) -> float:
    """Return the acceptance probability per draft token from which a draft reaches that gain; above 1 if none does."""
    n = len(passes) - 1
    if gain([1.0] * n, drafted, passes) < wanted:
        return 1.01
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if gain([middle] * n, drafted, passes) >= wanted else (middle, high)
    return high


def extended(right: Sequence[float], n: int) -> list[float]:
    """Return acceptance probabilities of `n` draft tokens: the measured ones, with the last one repeated."""
    return [*right, *[right[-1] if right else 0.0] * n][:n]


def why_not(drafted: float, passes: Sequence[float], right: float, n: int, measured: float) -> str:
    """Return the reason why a draft is not kept, in a sentence.

    `right` is the accepted share of the `n` draft tokens verified in decoding, or if `n` is 0, of its first ones on
    held-out texts. `measured` is the speed relative to no draft.
    """
    needed = break_even(drafted, passes)
    must = f"{needed:.0%} of its draft tokens must be accepted" if needed <= 1 else "no acceptance rate is high enough"
    found = f"{right:.0%} of the {n} verified ones were" if n else f"{right:.0%} of its first draft tokens are right"
    few = ", but it was confident enough of too few" if n and right >= needed else ""
    return (
        f"It is {measured:.2f} times as fast as without it, and {GAIN} is required. With the cost of a pass here "
        f"({passes[0] * 1e3:.1f} ms for one token, {passes[1] * 1e3:.1f} for two, {drafted * 1e3:.1f} for a draft "
        f"token), {must}; {found}{few}."
    )
