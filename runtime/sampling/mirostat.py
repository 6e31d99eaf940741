"""Mirostat 2: keeps the surprise of a reply's tokens at a level (Basu et al., arXiv 2007.14966, algorithm 2).

Its limit depends on the tokens before and on their distributions, which are kept by path until the next step.
"""

from __future__ import annotations

import math

from runtime.core.draft import Distribution, Path, Tokens


class Mirostat:
    """The limit on the surprise of a reply's tokens."""

    def __init__(self, level: float, rate: float) -> None:
        """`level` is the wanted surprise in bits, `rate` the share of a deviation that the next token corrects."""
        self._level, self._rate, self._n = level, rate, 0
        self._limits: dict[Path, float] = {(): 2 * level}
        self._given = dict[Path, Distribution]()

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n], which extend those of the last call by a path of the step before."""
        if len(reply) == self._n:
            return
        limit = self.limit(tuple(reply[self._n :].tolist()))
        self.resume(limit, len(reply))

    def resume(self, limit: float, n: int) -> None:
        """Continue after a reply's first `n` tokens with the limit there."""
        self._n, self._limits, self._given = n, {(): limit}, {}

    def limit(self, path: Path) -> float:
        """Return the largest allowed surprise of the token after `path`, in bits; where the distributions on the way
        are not known, as to a drafter, that of as much of it as is known.
        """
        if path not in self._limits:
            before = self.limit(path[:-1])
            given = self._given.get(path[:-1])
            chance = given.of(path[-1]) if given else 0.0
            if not chance:
                return before
            self._limits[path] = before - self._rate * (-math.log2(chance) - self._level)
        return self._limits[path]

    def remember(self, path: Path, given: Distribution) -> None:
        """Keep the distribution of the target's token after `path`."""
        self._given[path] = given
