"""Random numbers that are functions of a seed, a position and a token, so that no draft changes them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.sampling.settings import MAX_SEED

STEPS, LAST = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)), 31  # shifts and factors
WIDE_STEPS, WIDE_LAST = [(np.uint64(shift), np.uint64(factor)) for shift, factor in STEPS], np.uint64(LAST)
COIN = 2**63  # in place of a token: an id that none has


def mix(x: int) -> int:
    """Return SplitMix64's finalizer of a number of 64 bits (Steele et al., OOPSLA 2014)."""
    for shift, factor in STEPS:
        x = (x ^ (x >> shift)) * factor & MAX_SEED
    return x ^ (x >> LAST)


def mix_all(x: NDArray[np.uint64], room: NDArray[np.uint64]) -> None:
    """Replace each number [n] by that; `room` is another array [n]."""
    for shift, factor in WIDE_STEPS:
        x ^= np.right_shift(x, shift, out=room)
        x *= factor
    x ^= np.right_shift(x, WIDE_LAST, out=room)


def key(seed: int, position: int) -> int:
    """Return the number of 64 bits from which the noise of a position is computed."""
    return mix(mix(seed + 0x9E3779B97F4A7C15 & MAX_SEED) + position & MAX_SEED)


def gumbel(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Gumbel noise [n] for tokens `ids` [n], a function of (seed, position, id) alone."""
    bits: NDArray[np.uint64] = ids.view(np.uint64) + np.uint64(key(seed, position))
    room = np.empty_like(bits)
    mix_all(bits, room)
    mix_all(bits, room)
    noise: NDArray[np.float64] = np.right_shift(bits, np.uint64(11), out=room).astype(np.float64)
    noise += 0.5
    noise *= 2.0**-53
    for _ in range(2):
        np.negative(np.log(noise, out=noise), out=noise)
    return noise


def coin(seed: int, position: int) -> float:
    """Return a number from 0 to 1, a function of (seed, position) alone and independent of the noise of tokens."""
    return float(mix(mix(COIN + key(seed, position) & MAX_SEED)) >> 11) * 2.0**-53
