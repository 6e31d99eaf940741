"""The shortest way through a reply for somebody who knew which guesses would come true: a ceiling, out of reach without
that knowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Step = tuple[float, str, int, int]  # seconds, drafter, tokens drafted, tokens accepted


@dataclass(frozen=True, slots=True)
class Guesser:
    """One drafter in one reply: how many of its tokens are right at each place, and the seconds of a step by tokens
    drafted.
    """

    right: Sequence[int]
    seconds: Mapping[int, float]


def shortest(n: int, plain: float, guessers: Iterable[Guesser]) -> float:
    """Seconds for `n` tokens, a plain step taking `plain`: at every place the best drafter and length, backward from
    the end.
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
    """[n] how many tokens were right from each place on, as far as any of the replies shows; all have the same text."""
    right = [0] * n
    for steps in replies:
        place = 0
        for *_, n_accepted in steps:
            for i in range(min(n_accepted, n - place)):
                right[place + i] = max(right[place + i], n_accepted - i)
            place += n_accepted + 1
    return right


def seconds_by_length(steps: Iterable[Step]) -> dict[int, float]:
    """Tokens drafted -> the median seconds of a step."""
    taken: dict[int, list[float]] = {}
    for seconds, _, n_drafted, _ in steps:
        taken.setdefault(n_drafted, []).append(seconds)
    return {k: median(times) for k, times in taken.items()}
