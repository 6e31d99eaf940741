"""Rows of logits: the largest of them, their softmax, the nucleus. Pure functions that are exact and look at as little as they can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.draft import Logits

BLOCK = 64  # values of which only the largest is looked at first


def block_maxima(logits: Logits) -> NDArray[np.float32]:
    """[n] maxima of BLOCK logits each, n = len(logits) // BLOCK: set i has i, i + n, ...; a few at the end are in none."""
    n = len(logits) // BLOCK
    return logits[: n * BLOCK].reshape(BLOCK, n).max(axis=0) if n else logits


def top_ids(logits: Logits, k: int) -> NDArray[np.int64]:
    """The ids [k] of the k largest logits, ascending.

    The k-th largest of the sets' maxima has k values at or above it, so only sets that reach it need to be looked at.
    """
    n = len(logits) // BLOCK
    if k >= n:
        near = np.arange(len(logits))
    else:
        maxima = block_maxima(logits)
        least = np.partition(maxima, -k)[-k]
        sets = np.flatnonzero(maxima >= least)
        places, which = np.nonzero(logits[: n * BLOCK].reshape(BLOCK, n)[:, sets] >= least)
        near = np.concatenate([places * n + sets[which], n * BLOCK + np.flatnonzero(logits[n * BLOCK :] >= least)])
    if len(near) > k:
        near = near[np.argpartition(logits[near], -k)[-k:]]
        near.sort()
    return near


def peak(logits: Logits, token: int) -> float:
    """About the probability of the likeliest token, at temperature 1: of each block only its largest logit is counted."""
    return min(1.0, 1 / float(np.exp(block_maxima(logits) - logits[token]).sum()))


def softmax(logits: Logits, temperature: float) -> NDArray[np.float64]:
    """Probabilities [n] in float64."""
    x = logits.astype(np.float64)
    x -= x.max()
    x /= temperature
    np.exp(x, out=x)
    x /= x.sum()
    return x


def nucleus(probs: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Indices, ascending, of the smallest set of likeliest tokens whose probabilities reach `top_p` (Holtzman et al., arXiv 1904.09751)."""
    near = np.flatnonzero(probs >= probs.max() * 1e-4)
    if probs[near].sum() < top_p:
        near = np.arange(len(probs))
    order = near[np.argsort(-probs[near], kind="stable")]
    kept = order[: int(probs[order].cumsum().searchsorted(top_p)) + 1]
    kept.sort()
    return kept


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token's log probability by the model itself, before any sampling setting, and the likeliest tokens in its place."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # (token id, log probability), likeliest first


def logprobs(rows: Logits, tokens: Sequence[int], n: int) -> tuple[TokenLogprobs, ...]:
    """For each of `tokens` [m] and the row [m, n_vocab] it was chosen from, with the `n` likeliest."""
    found = []
    for row, token in zip(rows, tokens, strict=True):
        x = row.astype(np.float64)
        x -= x.max()
        x -= np.log(np.exp(x).sum())
        near = top_ids(row, min(n, len(row))) if n else np.zeros(0, dtype=np.int64)
        near = near[np.argsort(-x[near], kind="stable")]
        found.append(TokenLogprobs(token, float(x[token]), tuple(zip(near.tolist(), x[near].tolist(), strict=True))))
    return tuple(found)
