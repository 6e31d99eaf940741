"""From a row of logits to the distribution of the next token: penalties, temperature, top-k, top-p, min-p.

Pure functions; know no context and no seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from runtime.core.draft import Distribution, Logits, Tokens, certain
from runtime.sampling.logits import Row, nucleus, softmax
from runtime.sampling.settings import Sampling

FEW = 64  # values up to which plain Python is faster than NumPy
ROUNDING = 1e-3  # safety margin for bounds on exponents


def lead(sampling: Sampling, n: int) -> float:
    """Return the lead over the second of `n` tokens from which the most likely one is certain to be the only one
    left. It is in logits; temperature above 0.
    """
    by_min_p = -math.log(sampling.min_p) if sampling.min_p else math.inf
    n_others = max(1, (sampling.top_k if sampling.top_k > 0 else n) - 1)
    by_top_p = math.log(n_others * sampling.top_p / (1 - sampling.top_p)) if sampling.top_p < 1 else math.inf
    return sampling.temperature * (max(0.0, min(by_min_p, by_top_p)) + ROUNDING)


def distribution(row: Row, sampling: Sampling) -> Distribution:
    """Return the distribution of the next token, from the temperature step on; temperature above 0."""
    token = row.lone(lead(sampling, len(row.logits)))
    return uncertain(row, sampling) if token is None else certain(token)


def uncertain(row: Row, sampling: Sampling) -> Distribution:
    """Return the same without first looking for a token that is certain."""
    n = len(row.logits)
    ids = row.top_ids(min(sampling.top_k, n)) if sampling.top_k > 0 else np.arange(n)
    if len(ids) <= FEW:
        few, weights = cut(row.logits[ids].tolist(), sampling)
        return Distribution(ids[few], np.array(weights) / sum(weights))
    probs = softmax(row.logits[ids], sampling.temperature)
    kept = nucleus(probs, sampling.top_p) if sampling.top_p < 1 else np.arange(len(ids))
    near = probs[kept]
    kept = np.sort(kept[near >= max(sampling.min_p * near.max(), 1e-300)])
    return Distribution(ids[kept], probs[kept] / probs[kept].sum())


def cut(logits: Sequence[float], sampling: Sampling) -> tuple[list[int], list[float]]:
    """Return the indices of a few logits that temperature, top-p and min-p keep, ascending, and their weights.

    In Python it takes a third of the time of NumPy's functions, whose code a pass leaves in no cache.
    """
    best, temperature = max(logits), sampling.temperature
    weights = [math.exp((logit - best) / temperature) for logit in logits]
    most, least, mass = sampling.top_p * sum(weights), max(sampling.min_p, 1e-300), 0.0
    kept = list[int]()
    for i in sorted(range(len(weights)), key=weights.__getitem__, reverse=True):
        if weights[i] < least or (mass >= most and sampling.top_p < 1):
            break
        mass += weights[i]
        kept.append(i)
    kept.sort()
    return kept, [weights[i] for i in kept]


def penalise(logits: Logits, recent: Tokens, sampling: Sampling) -> None:
    """Apply the three penalties to `logits` [n_vocab] in place (repetition: Keskar et al., arXiv 1909.05858)."""
    ids, counts = np.unique(recent, return_counts=True)
    inside = ids < len(logits)
    ids, counts = ids[inside], counts[inside]
    values = logits[ids]
    values = np.where(values > 0, values / sampling.repetition_penalty, values * sampling.repetition_penalty)
    logits[ids] = values - sampling.frequency_penalty * counts - sampling.presence_penalty
