"""Does a draft pay with what passes cost here? From which share of accepted guesses on, in numbers.

Pure arithmetic by the controller's own measure: tokens of a step over its seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

GAIN = 1.03  # times the speed of plain decode, from which a draft is kept
HALVINGS = 30


def gain(shares: Sequence[float], drafted: float, passes: Sequence[float]) -> float:
    """Times the speed of plain decode with the best number of draft tokens; 1 where none pays.

    `shares` are the chances of each draft token, given those before it; `drafted` the seconds of one; `passes` the
    seconds of target passes over 1, 2, ... rows.
    """
    best, expected, survives = 1.0, 1.0, 1.0
    for k, (share, seconds) in enumerate(zip(shares, passes[1:], strict=False), 1):
        survives *= share
        expected += survives
        best = max(best, expected * passes[0] / (k * drafted + seconds))
    return best


def break_even(drafted: float, passes: Sequence[float], wanted: float = GAIN) -> float:
    """The chance of each draft token from which a draft brings that gain; more than 1 where no chance does."""
    n = len(passes) - 1
    if gain([1.0] * n, drafted, passes) < wanted:
        return 1.01
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if gain([middle] * n, drafted, passes) >= wanted else (middle, high)
    return high


def extended(right: Sequence[float], n: int) -> list[float]:
    """Chances of `n` draft tokens, of which the first were measured; the last measured one holds for those behind."""
    return [*right, *[right[-1] if right else 0.0] * n][:n]


def why_not(drafted: float, passes: Sequence[float], right: float, n: int, measured: float) -> str:
    """Why a draft is not kept, in a sentence: `right` of the `n` guesses that were compared in decoding were accepted,
    or where `n` is 0, of its first guesses on held-out texts; it was `measured` times as fast as without it.
    """
    needed = break_even(drafted, passes)
    must = f"{needed:.0%} of its guesses must be accepted" if needed <= 1 else "no share of accepted guesses would do"
    found = f"{right:.0%} of the {n} that it made were" if n else f"{right:.0%} of its first ones are right"
    few = ", but it was sure enough of too few" if n and right >= needed else ""
    return (
        f"It is {measured:.2f} times as fast as without it, and {GAIN} is asked. With what a pass costs here "
        f"({passes[0] * 1e3:.1f} ms for one token, {passes[1] * 1e3:.1f} for two, {drafted * 1e3:.1f} for a guess), "
        f"{must}; {found}{few}."
    )
