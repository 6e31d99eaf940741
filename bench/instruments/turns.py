"""Replies that are made side by side, a pass of one after a pass of the other: so a busy moment of the machine hits all
alike.

Dividing the rates of whole replies that followed each other says more about the machine than about the ways, where it
is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from runtime.engine import Chunk
from runtime.engine.stats import Stats


def side_by_side(replies: Mapping[str, Iterator[Chunk]]) -> dict[str, tuple[str, Stats]]:
    """Text and numbers of each reply; they take turns until all have ended."""
    texts, done = dict.fromkeys(replies, ""), dict[str, tuple[str, Stats]]()
    while len(done) < len(replies):
        for name in [name for name in replies if name not in done]:
            chunk = next(replies[name])
            texts[name] += chunk.text
            if chunk.stats:
                done[name] = texts[name], chunk.stats
    return done


def rounds(measure: Callable[[], dict[str, float]], runs: int) -> dict[str, list[float]]:
    """What `measure` gives by name, in each round but the first, which only warms up."""
    found = [measure() for _ in range(runs + 1)][1:]
    return {name: [values[name] for values in found] for name in found[0]}
