"""What the samplers of a reply depend on besides a row of logits: the tokens before, coins, the surprise so far.

All of it is a function of the tokens and the seed, so that rejected drafts leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from runtime.core.draft import Distribution, Logits, Path, Tokens
from runtime.core.image_runs import text_only
from runtime.sampling.chain import Chain, Change, TokenPlace
from runtime.sampling.dry import Breakers, Dry
from runtime.sampling.logits import Row, distribution, penalise
from runtime.sampling.mirostat import Mirostat
from runtime.sampling.noise import coin
from runtime.sampling.settings import Sampling

NO_CONTEXT: Tokens = np.zeros(0, dtype=np.int32)


class ReplySamplers:
    """The samplers of one reply, in their order, at its present place."""

    def __init__(self, sampling: Sampling, breakers: Breakers, draw_seed: Callable[[], int]) -> None:
        """`draw_seed` returns a seed for the coins of a reply without one."""
        rare, changes = sampling.rare, changes_of(sampling, breakers)
        self._sampling, self._draw_seed, self._seed = sampling, draw_seed, sampling.seed
        self._chain = Chain(sampling, changes) if rare.has_order else None
        self._first = self._chain.first if self._chain else [*changes.values()]
        self._mirostat = Mirostat(rare.mirostat_tau, rare.mirostat_eta) if rare.mirostat else None
        self._context, self._position = NO_CONTEXT, 0

    @property
    def changes_logits(self) -> bool:
        """Whether any changes the logits before tokens are left out."""
        return bool(self._first)

    def begin(self, context: Tokens, position: int) -> None:
        """Set the `context` [n] that every path starts after; its last `position` tokens are the reply's."""
        self._context, self._position = text_only(context), position
        if self._mirostat:
            self._mirostat.begin(context[len(context) - position :])

    def change(self, logits: Logits, path: Path) -> None:
        """Apply the penalties after `path` to `logits` [n_vocab] in place."""
        if self._first:
            place = self._place(path)
            for each in self._first:
                each(logits, place)

    def distribution(self, row: Row, path: Path, is_targets: bool) -> Distribution:
        """Return the distribution of the token after `path` by its changed row, which is the target's or a drafter's;
        temperature above 0.
        """
        if self._chain is None:
            return distribution(row, self._sampling)
        given = self._chain.distribution(row, self._place(path))
        if self._mirostat and is_targets:
            self._mirostat.remember(path, given)
        return given

    def surprise_limit(self, path: Path) -> float | None:
        """Return mirostat's limit on the surprise of the token after `path`, which the target chose; None without."""
        return self._mirostat.limit(path) if self._mirostat else None

    def resume(self, surprise_limit: float, n: int) -> None:
        """Continue a reply after `n` tokens with mirostat's limit there."""
        if self._mirostat:
            self._mirostat.resume(surprise_limit, n)

    def _place(self, path: Path) -> TokenPlace:
        place = TokenPlace(self._context, path, partial(self._coin, len(path)))
        return place if self._mirostat is None else replace(place, limit=self._mirostat.limit(path))

    def _coin(self, depth: int) -> float:
        """Return the random number of the place `depth` tokens after the context."""
        if self._seed is None:
            self._seed = self._draw_seed()
        return coin(self._seed, self._position + depth)


def changes_of(sampling: Sampling, breakers: Breakers) -> dict[str, Change]:
    """Return what changes logits by the tokens before, by the names of their samplers."""
    rare, found = sampling.rare, dict[str, Change]()
    if sampling.penalises:
        found["penalties"] = lambda logits, at: penalise(logits, at.recent(sampling.penalty_last_n), sampling)
    if rare.has_dry:
        dry = Dry(rare, breakers)
        found["dry"] = lambda logits, at: dry.penalise(logits, at.recent(rare.dry_penalty_last_n))
    return found
