"""After which layer a target exits early, and with how many words: checked against the library's own passes, and chosen
by what pays best here.

Knows a target that can exit early, and what was found at an earlier start; how layers are skipped is its backend's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.nodes import EarlyExitError
from runtime.core.draft import Draft, Tokens
from runtime.loading.profile_cache import ProfileCache
from runtime.models.trimmed import n_few

SAMPLE = 32  # tokens of the target's own on which exit layers are compared
CANDIDATES = 6  # exit layers that are compared
DRAFTED = 3  # tokens of the drafts by which they are


def settle(target: EarlyExitBackend, layer: int, cache: ProfileCache) -> str:
    """Has the target exit after `layer` layers, or where it pays best if that is 0, with as many words as pay best;
    returns why it must not, or "".
    """
    profile = cache.read()
    is_known = profile.keys() >= {"layer", "problem", "reuses", "words"}
    if not (is_known and profile["layer"] in range(1, target.n_layers + 1)):
        found = layer or best_exit(target)
        target.exit_at(found)
        check = target.check()
        words = 0 if check.problem else best_words(target)
        profile = {"layer": found, "problem": check.problem, "reuses": check.reuses, "words": words}
        cache.write(profile)
    target.exit_at(int(profile["layer"]))
    target.reuses = bool(profile["reuses"])
    if profile["words"] == n_few(target.n_vocab) != 0:
        with suppress(EarlyExitError):  # all words then
            target.narrow(n_few(target.n_vocab))
    return str(profile["problem"])


def best_exit(target: EarlyExitBackend) -> int:
    """The exit layer whose drafts pay best on a text of the target's own, by agreement and by seconds."""
    text, verify = own_text(target), verify_seconds(target)
    layers = sorted({max(1, round(target.n_layers * i / (2 * CANDIDATES))) for i in range(1, CANDIDATES + 1)})
    worth: dict[int, float] = {}
    for layer in layers:
        target.exit_at(layer)
        worth[layer] = worth_of(text, target, verify)
    return max(layers, key=worth.__getitem__)


def best_words(target: EarlyExitBackend) -> int:
    """How many of the first words early passes had better compute, by the same; 0: all."""
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
    """Tokens of a step with a draft over its seconds, `verify` those of the full pass."""
    agreement = agreement_with(text, target)
    tokens = sum(agreement**i for i in range(DRAFTED + 1))
    return tokens / (DRAFTED * seconds(lambda: target.early.forward(text[:2])) + verify)


def verify_seconds(target: EarlyExitBackend) -> float:
    """Seconds of a full pass over a draft."""
    draft = Draft((0,) * min(DRAFTED, target.n_rows - 1))
    return seconds(lambda: target.forward(np.zeros(1, dtype=np.int32), draft))


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
