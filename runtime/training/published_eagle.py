"""Converts published EAGLE-1 and EAGLE-2 checkpoints, such as yuhuili/EAGLE-*: names of tensors and dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.core.errors import ModelError
from runtime.drafters.network import AttentionShape, NetworkShape, Rows
from runtime.models.own_heads import MAX_HEADS

FIRST = "fc.weight"  # no other kind of head has it
LAYER = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
OURS = {FIRST: FIRST, "fc.bias": "fc.bias"} | {f"layers.0.{key}.weight": f"{LAYER[key]}.weight" for key in LAYER}
THE_TARGETS = "embed_tokens.weight"  # a copy of the target's table
LATER = "d2t", "midlayer.hidden_norm.weight"  # tensors of EAGLE-3


def eagle_names(weights: Mapping[str, Rows], name: str) -> dict[str, Rows]:
    """Return the tensors by our names. Raises KeyError for an unknown one, and ModelError for EAGLE-3."""
    if any(each in weights for each in LATER):
        raise ModelError(f"{name} is an EAGLE-3 head: convert it with llama.cpp's convert_hf_to_gguf.py.")
    found = {OURS[each]: rows for each, rows in weights.items() if each != THE_TARGETS}
    return {"fc.bias": np.zeros(len(found[FIRST]), dtype=np.float32)} | found


def eagle_shape(_: Mapping[str, Rows], config: Mapping[str, Any], name: str) -> NetworkShape:
    """Return the dimensions that a configuration states. Raises ModelError."""
    if (n_layers := config.get("num_hidden_layers", 1)) != 1:
        raise ModelError(f"{name} has {n_layers} layers, and an EAGLE-1 head has one. Use another checkpoint.")
    width, n_heads = (whole(config, key) for key in ("hidden_size", "num_attention_heads"))
    n_kv, ffn = whole(config, "num_key_value_heads") or n_heads, whole(config, "intermediate_size")
    base, eps = positive(config, "rope_theta", 1e4, name), positive(config, "rms_norm_eps", 1e-6, name)
    if (attention := AttentionShape.of(width, n_heads, n_kv, ffn, base, eps)) is None:
        raise ModelError(f"{name} does not state the shape of its layer in config.json. Download it again.")
    return NetworkShape(width, MAX_HEADS, 1, attention)


def positive(config: Mapping[str, Any], key: str, usual: float, name: str) -> float:
    """Return a positive number; the `usual` one if there is none. Raises ModelError for anything else."""
    value = config.get(key, usual)
    if isinstance(value, int | float) and 0 < value < 2**31:
        return float(value)
    raise ModelError(f"{key} in the config.json of {name} is no positive number below 2^31. Download it again.")


def whole(config: Mapping[str, Any], key: str) -> int:
    """Return a count; 0 if there is none."""
    value = config.get(key)
    return value if isinstance(value, int) and 0 < value < 2**31 else 0
