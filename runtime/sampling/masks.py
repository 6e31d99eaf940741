"""Several things that bind a reply at once. Knows masks; must not know what they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.core.draft import Path, Tokens
from runtime.sampling.sampler import TokenMask


class SharedMask:
    """Allows what all of its masks allow, and where that is nothing, what the last one does. Implements TokenMask."""

    def __init__(self, masks: Sequence[TokenMask]) -> None:
        self._masks = masks

    def begin(self, reply: Tokens) -> None:
        """The reply has these tokens [n] now."""
        for mask in self._masks:
            mask.begin(reply)

    def allowed(self, path: Path) -> NDArray[np.bool_]:
        """[n_vocab] which tokens may follow the reply and `path`."""
        masks = [mask.allowed(path) for mask in self._masks]
        found: NDArray[np.bool_] = np.logical_and.reduce(masks)
        return found if found.any() else masks[-1]

    def forced(self) -> Path:
        """What the first of them that leaves no choice demands."""
        return next(filter(None, (mask.forced() for mask in self._masks)), ())


def together(masks: Sequence[TokenMask]) -> TokenMask | None:
    """All of them as one; None where there is none."""
    return SharedMask(masks) if len(masks) > 1 else next(iter(masks), None)
