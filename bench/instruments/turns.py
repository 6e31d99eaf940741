"""Replies generated side by side, one pass each in turn, so that other load of the machine affects all alike.

On a shared machine, ratios of the rates of successive whole replies depend more on the machine than on the
configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from runtime.engine import Chunk
from runtime.engine.stats import Stats


def side_by_side(replies: Mapping[str, Iterator[Chunk]]) -> dict[str, tuple[str, Stats]]:
    """Return text and numbers of each reply; they take turns until all have ended."""
    texts, done = dict.fromkeys(replies, ""), dict[str, tuple[str, Stats]]()
    while len(done) < len(replies):
        for name in [name for name in replies if name not in done]:
            chunk = next(replies[name])
            texts[name] += chunk.text
            if chunk.stats:
                done[name] = texts[name], chunk.stats
    return done


def rounds(measure: Callable[[], dict[str, float]], runs: int) -> dict[str, list[float]]:
    """Return the results of `measure` by name, in each round but the first, which only warms up."""
    found = [measure() for _ in range(runs + 1)][1:]
    return {name: [values[name] for values in found] for name in found[0]}
