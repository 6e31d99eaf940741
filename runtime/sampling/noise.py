"""Random numbers that are functions of a seed, a position and a token, so that no draft changes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.settings import MAX_SEED

COIN = 2**63  # in place of a token: an id that none has


def mix(x: Any) -> Any:
    """Return SplitMix64's finalizer of a Python int or, wrapping, of a uint64 array (Steele et al., OOPSLA 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> shift)) * factor
        x = x & MAX_SEED if isinstance(x, int) else x
    return x ^ (x >> 31)


def key(seed: int, position: int) -> int:
    """Return the number of 64 bits from which the noise of a position is computed."""
    return int(mix(mix(seed + 0x9E3779B97F4A7C15 & MAX_SEED) + position & MAX_SEED))


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Gumbel noise [n] for tokens `ids` [n], a function of (seed, position, id) alone."""
    bits = mix(mix(ids.astype(np.uint64) + np.uint64(key(seed, position))))
    uniform = ((bits >> 11).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(uniform))
    return noise


def coin(seed: int, position: int) -> float:
    """Return a number from 0 to 1, a function of (seed, position) alone and independent of the noise of tokens."""
    return float(mix(mix(COIN + key(seed, position) & MAX_SEED)) >> 11) * 2.0**-53
