"""llama.cpp's own samplers, applied to a row of logits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np

from runtime.core.draft import Logits


def applied(samplers: Sequence[Any], logits: Logits, history: Sequence[int] = ()) -> dict[int, float]:
    """Return the probabilities of the tokens that llama.cpp's samplers leave, after a history; frees the samplers."""
    data = (lib.llama_token_data * len(logits))()
    for i, logit in enumerate(logits.tolist()):
        data[i].id, data[i].logit = i, logit
    array = lib.llama_token_data_array(ctypes.cast(data, lib.llama_token_data_p), len(logits), -1, False)
    for sampler in samplers:
        for token in history:
            lib.llama_sampler_accept(sampler, token)
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
        lib.llama_sampler_free(sampler)
    left = {array.data[i].id: array.data[i].logit for i in range(array.size)}
    best = max(left.values())
    weights = {token: float(np.exp(np.float64(logit) - best)) for token, logit in left.items() if logit > -np.inf}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def dry(vocab: Any, multiplier: float, base: float, allowed: int, last_n: int, breakers: Sequence[str]) -> Any:
    """Return llama.cpp's DRY sampler for a vocabulary."""
    texts = (ctypes.c_char_p * len(breakers))(*(each.encode() for each in breakers))
    return lib.llama_sampler_init_dry(vocab, multiplier, base, allowed, last_n, texts, len(breakers))
