"""The shortest time for a reply with perfect knowledge of which draft tokens are accepted. This is a ceiling that no
real policy can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Step = tuple[float, str, int, int]  # seconds, drafter, tokens drafted, tokens accepted


@dataclass(frozen=True, slots=True)
class Guesser:
    """One drafter in one reply: the number of its correct tokens at each position, and the seconds of a step by tokens
    drafted.
    """

    right: Sequence[int]
    seconds: Mapping[int, float]


def shortest(n: int, plain: float, guessers: Iterable[Guesser]) -> float:
    """Return the least seconds for `n` tokens, with a plain step taking `plain`. Dynamic programming from the end
    chooses the best drafter and draft length at every position.
    """
    guessers, left = list(guessers), [0.0] * (n + 1)
    for place in reversed(range(n)):
        ways = [plain + left[place + 1]]
        for each in guessers:
            ways += [
                seconds + left[min(n, place + 1 + min(k, each.right[place]))] for k, seconds in each.seconds.items()
            ]
        left[place] = min(ways)
    return left[0]


def right_at(n: int, replies: Iterable[Sequence[Step]]) -> list[int]:
    """Return the number of correct draft tokens from each of `n` positions on, the most over all replies, which have
    the same text.
    """
    right = [0] * n
    for steps in replies:
        place = 0
        for *_, n_accepted in steps:
            for i in range(min(n_accepted, n - place)):
                right[place + i] = max(right[place + i], n_accepted - i)
            place += n_accepted + 1
    return right


def seconds_by_length(steps: Iterable[Step]) -> dict[int, float]:
    """Return the median seconds of a step by tokens drafted."""
    taken: dict[int, list[float]] = {}
    for seconds, _, n_drafted, _ in steps:
        taken.setdefault(n_drafted, []).append(seconds)
    return {k: median(times) for k, times in taken.items()}
