"""Chooses a target's exit layer and number of words, by speed here, and checks them against the library's own passes.

Knows a target that can exit early, and the result of an earlier start; its backend skips the layers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.heads.graph import EarlyExitError
from runtime.core.draft import Draft, Tokens
from runtime.loading.neighbours import Neighbours, is_calm
from runtime.loading.profile_cache import ProfileCache
from runtime.models.trimmed import n_few

SAMPLE = 32  # tokens of the target's own text on which exit layers are compared
CANDIDATES = 6  # exit layers that are compared
DRAFTED = 3  # draft tokens of a step in the comparison
# What is cached: besides the layer, why it must not exit early, whether verifying continues from early passes, and the
# number of words of those
FIELDS = {"layer", "problem", "reuses", "words", "is_calm"}


def settle(target: EarlyExitBackend, layer: int, cache: ProfileCache) -> str:
    """Set the target's exit layer to `layer`, or the best-paying one if that is 0, and its best-paying number of words.

    Return why it must not exit early, or "". What was measured while other programs were busy is measured again at the
    first start at which they are not.
    """
    profile = cache.read()
    is_known = profile.keys() >= FIELDS and profile["layer"] in range(1, target.n_layers + 1)
    if not is_known or (not profile["is_calm"] and is_calm()):
        others = Neighbours()
        profile = measured(target, layer) | {"is_calm": others.are_calm()}
        cache.write(profile)
    target.exit_at(int(profile["layer"]))
    target.reuses = bool(profile["reuses"])
    if profile["words"] == n_few(target.n_vocab) != 0:
        with suppress(EarlyExitError):  # then it computes all words
            target.narrow(n_few(target.n_vocab))
    return str(profile["problem"])


def measured(target: EarlyExitBackend, layer: int) -> dict[str, Any]:
    """Return the profile of a target, but for whether others were busy: FIELDS says what."""
    found = layer or best_exit(target)
    target.exit_at(found)
    check = target.check()
    words = 0 if check.problem else best_words(target)
    return {"layer": found, "problem": check.problem, "reuses": check.reuses, "words": words}


def best_exit(target: EarlyExitBackend) -> int:
    """Return the exit layer whose drafts pay best on a text of the target's own, by agreement and by seconds."""
    text, verify = own_text(target), verify_seconds(target)
    layers = sorted({max(1, round(target.n_layers * i / (2 * CANDIDATES))) for i in range(1, CANDIDATES + 1)})
    worth: dict[int, float] = {}
    for layer in layers:
        target.exit_at(layer)
        worth[layer] = worth_of(text, target, verify)
    return max(layers, key=worth.__getitem__)


def best_words(target: EarlyExitBackend) -> int:
    """Return the number of first words that early passes should compute, by the same measure; 0: all."""
    if not (n := n_few(target.n_vocab)):
        return 0
    text, verify = own_text(target), verify_seconds(target)
    all_words = worth_of(text, target, verify)
    try:
        target.narrow(n)
    except EarlyExitError:
        return 0
    few_words = worth_of(text, target, verify)
    target.narrow(0)
    return n if few_words > all_words else 0


def worth_of(text: Tokens, target: EarlyExitBackend, verify: float) -> float:
    """Return the tokens per second of a step with a draft, given `verify`, the seconds of its full pass."""
    agreement = agreement_with(text, target)
    tokens = sum(agreement**i for i in range(DRAFTED + 1))
    return tokens / (DRAFTED * seconds(lambda: target.early.forward(text[:2])) + verify)


def verify_seconds(target: EarlyExitBackend) -> float:
    """Return the seconds of a full pass over a draft."""
    draft = Draft((0,) * min(DRAFTED, target.n_rows - 1))
    return seconds(lambda: target.forward(np.zeros(1, dtype=np.int32), draft))


def own_text(target: EarlyExitBackend) -> Tokens:
    """Return the target's greedy continuation of token 0."""
    text: Tokens = np.zeros(min(SAMPLE, target.n_ctx), dtype=np.int32)
    for n in range(1, len(text)):
        text[n] = target.forward(text[:n])[0].argmax()
    return text


def agreement_with(text: Tokens, target: EarlyExitBackend) -> float:
    """Return the share of the target's own tokens that its first layers would have chosen."""
    right = 0
    for start in range(1, len(text), target.n_rows):
        tokens = text[start : start + target.n_rows]
        early = target.early.forward(text[:start], Draft(tuple(tokens[:-1].tolist())))
        right += int((early.argmax(axis=1) == tokens).sum())
    return right / (len(text) - 1)


def seconds(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of a few runs."""
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return min(taken)
