"""Gumbel noise for a seed: a hash of (seed, position, token id), so neither order nor batch width matters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1


def mix(x: Any) -> Any:
    """Return SplitMix64's finalizer of a Python int or, wrapping, of a uint64 array (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor
        x = x & MASK if isinstance(x, int) else x
    return x ^ (x >> 31)


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Gumbel noise [n] for tokens `ids` [n], a function of (seed, position, id) alone."""
    key = np.uint64(mix(mix(seed + 0x9E3779B97F4A7C15 & MASK) + position & MASK))
    bits = mix(mix(ids.astype(np.uint64) + key))
    uniform = ((bits >> 11).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise
