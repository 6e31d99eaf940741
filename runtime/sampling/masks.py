"""Combines several masks of one reply. Knows masks; must not know their meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Path, Tokens
from runtime.sampling.sampler import TokenMask


class SharedMask:
    """Allows the tokens that all its masks allow; if there are none, those of the last mask. Implements TokenMask."""

    def __init__(self, masks: Sequence[TokenMask]) -> None:
        self._masks = masks

    def begin(self, reply: Tokens) -> None:
        """Set the reply's tokens [n]."""
        for mask in self._masks:
            mask.begin(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """Return the mask [n_vocab] of tokens that may follow the reply and `path`."""
        masks = [mask.allowed(path) for mask in self._masks]
        found: NDArray[np.bool_] = np.logical_and.reduce(masks)
        return found if found.any() else masks[-1]

    def forced(self) -> Path:
        """Return the forced tokens of the first mask that has any."""
        return next(filter(None, (mask.forced() for mask in self._masks)), ())


def together(masks: Sequence[TokenMask]) -> TokenMask | None:
    """Return all masks as one, or None if there are none."""
    return SharedMask(masks) if len(masks) > 1 else next(iter(masks), None)
