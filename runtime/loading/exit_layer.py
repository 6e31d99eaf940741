"""After which layer a target exits early: checked against the library's own passes, and chosen by what pays best here.

Knows a target that can exit early, and what was found at an earlier start; how layers are skipped is its backend's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from runtime.backends.early_exit import EarlyExitBackend
from runtime.core.draft import Draft, Tokens
from runtime.loading.profile_cache import ProfileCache

SAMPLE = 32  # tokens of the target's own on which exit layers are compared
CANDIDATES = 6  # exit layers that are compared
DRAFTED = 3  # tokens of the drafts by which they are


def settle(target: EarlyExitBackend, layer: int, cache: ProfileCache) -> str:
    """Has the target exit after `layer` layers, or where it pays best if that is 0; returns why it must not, or ""."""
    profile = cache.read()
    if not (profile.keys() >= {"layer", "problem", "reuses"} and profile["layer"] in range(1, target.n_layers + 1)):
        found = layer or best_exit(target)
        target.exit_at(found)
        check = target.check()
        profile = {"layer": found, "problem": check.problem, "reuses": check.reuses}
        cache.write(profile)
    target.exit_at(int(profile["layer"]))
    target.reuses = bool(profile["reuses"])
    return str(profile["problem"])


def best_exit(target: EarlyExitBackend) -> int:
    """The exit layer whose drafts pay best on a text of the target's own, by agreement and by seconds."""
    text = own_text(target)
    layers = sorted({max(1, round(target.n_layers * i / (2 * CANDIDATES))) for i in range(1, CANDIDATES + 1)})
    verify = seconds(lambda: target.forward(text[:1], Draft((0,) * min(DRAFTED, target.n_rows - 1))))
    worth: dict[int, float] = {}
    for layer in layers:
        target.exit_at(layer)
        agreement = agreement_with(text, target)
        tokens = sum(agreement**i for i in range(DRAFTED + 1))
        worth[layer] = tokens / (DRAFTED * seconds(lambda: target.early.forward(text[:2])) + verify)
    return max(layers, key=worth.__getitem__)


def own_text(target: EarlyExitBackend) -> Tokens:
    """What the target says, greedily, after token 0."""
    text: Tokens = np.zeros(min(SAMPLE, target.n_ctx), dtype=np.int32)
    for n in range(1, len(text)):
        text[n] = target.forward(text[:n])[0].argmax()
    return text


def agreement_with(text: Tokens, target: EarlyExitBackend) -> float:
    """The share of the target's own tokens that its first layers would have chosen."""
    right = 0
    for start in range(1, len(text), target.n_rows):
        tokens = text[start : start + target.n_rows]
        early = target.early.forward(text[:start], Draft(tuple(tokens[:-1].tolist())))
        right += int((early.argmax(axis=1) == tokens).sum())
    return right / (len(text) - 1)


def seconds(run: Callable[[], object]) -> float:
    """Seconds of the fastest of a few runs."""
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)
