"""A reply's sampling settings under llama.cpp's names. Settings that only llama.cpp has are reported as off."""

from __future__ import annotations

import math

from app.server.wire import Event
from runtime.engine import Sampling

OFF: Event = {
    "dynatemp_range": 0.0, "dynatemp_exponent": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "xtc_threshold": 0.1,
    "typical_p": 1.0, "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1,
    "dry_sequence_breakers": [], "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "adaptive_target": -1.0,
    "adaptive_decay": 0.9, "n_keep": 0, "n_discard": 0, "min_keep": 0, "backend_sampling": False, "lora": [],
}  # fmt: skip
ORDER = ["penalties", "temperature", "top_k", "top_p", "min_p"]
UNLIMITED = -1


def sampling_settings(sampling: Sampling) -> Event:
    """Return the sampling settings. A seed of -1 means none."""
    return OFF | {
        "seed": -1 if sampling.seed is None else sampling.seed,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repeat_last_n": sampling.penalty_last_n or UNLIMITED,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "samplers": ORDER,
    }


def biases(sampling: Sampling) -> list[Event]:
    """Return the biases of logits by token. null is minus infinity, which JSON cannot write."""
    return [{"token": token, "bias": None if bias == -math.inf else bias} for token, bias in sampling.logit_bias]
