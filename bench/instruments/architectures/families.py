"""The families by name, those with drafting layers of their own included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.instruments.architectures.attentive import ATTENTIVE, EMBEDDERS, TEXTLESS
from bench.instruments.architectures.family import EPSILON, MLA, MOE, SSM_BIASES, WINDOW, Family, Value, usual
from bench.instruments.architectures.recurrent import NEMOTRON, RECURRENT

OPTIONAL = r"nextn\.(embed_tokens|shared_head_head)"
SHARED: dict[str, Any] = {"expert_shared_count": 1, "expert_shared_feed_forward_length": 96, **MOE}
INDEXED: dict[str, Any] = {
    "attention__indexer__head_count": 8,
    "attention__indexer__key_length": 64,
    "attention__indexer__top_k": 64,
}
LATENT: dict[str, Any] = {
    "leading_dense_block_count": 1,
    "attention__q_lora_rank": 64,
    "rope__dimension_count": 32,
    **MLA,
}


def step35(n_drafting: int) -> Family:
    """Return the family with `n_drafting` drafting layers."""
    return usual(
        "step35",
        layers=4 + n_drafting,
        head=32,
        biases="exp_probs_b",
        dropped=OPTIONAL,
        nextn_predict_layers=n_drafting,
        rope__dimension_count=32,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=[False, True, True, False, *[True] * n_drafting],
        **SHARED,
    )


def with_layer(family: Family, **more: Value) -> Family:
    """Return the family with an additional drafting layer."""
    n_layers = family.metadata["block_count"]
    assert isinstance(n_layers, int)
    own = {"block_count": n_layers + 1, "nextn_predict_layers": 1}
    return replace(family, metadata={**family.metadata, **own, **more}, dropped=OPTIONAL)


DRAFTING: dict[str, Family] = {
    "qwen35moemtp": with_layer(RECURRENT["qwen35moe"]),
    "qwen3nextmtp": with_layer(RECURRENT["qwen3next"]),
    "deepseek2mtp": with_layer(ATTENTIVE["deepseek2"]),
    "deepseek4mtp": with_layer(ATTENTIVE["deepseek4"], **{"attention.compress_ratios": [0, 0, 4, 128, 0]}),
    "deepseek32": usual(
        "deepseek32",
        layers=5,
        kv_heads=1,
        biases="exp_probs_b|indexer",
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        expert_gating_func=2,
        expert_weights_scale=1.0,
        **SHARED | LATENT | INDEXED,
    ),
    "glmdsa": usual(
        "glm-dsa",
        layers=5,
        kv_heads=1,
        biases="exp_probs_b|indexer",
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        expert_weights_scale=1.0,
        **SHARED | LATENT | INDEXED,
    ),
    "nemotron_h_moe_mtp": usual(
        "nemotron_h_moe",
        layers=7,
        ffn=[0, 256, 0, 256, 0, 256, 256],
        kv_heads=[0, 0, 2, 0, 0, 0, 2],
        biases=f"{SSM_BIASES}|exp_probs_b",
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        expert_weights_norm=True,
        expert_weights_scale=1.0,
        **NEMOTRON | SHARED,
    ),
    "step35": step35(1),
    "step35three": step35(3),
    "mimo2": usual(
        "mimo2",
        layers=5,
        head=32,
        biases="exp_probs_b",
        dropped=rf"{OPTIONAL}|blk\.4\.(ffn_\w*(exps|inp)|exp_probs)",
        nextn_predict_layers=1,
        rope__dimension_count=32,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=[False, True, True, False, True],
        **MOE,
    ),
    "hy_v3": usual(
        "hy_v3",
        layers=5,
        head=32,
        biases="exp_probs_b",
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        leading_dense_block_count=1,
        **SHARED,
    ),
    "cohere2moe": usual(
        "cohere2moe",
        layers=5,
        head=32,
        epsilon=EPSILON,
        is_tied=True,
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        leading_dense_block_count=1,
        attention__sliding_window=WINDOW,
        logit_scale=1.0,
        rope__dimension_count=32,
        **SHARED,
    ),
    "bailingmoe3": usual(
        "bailingmoe3",
        layers=5,
        kv_heads=[0, 0, 0, 1, 1],
        biases="exp_probs_b|ssm_dt",
        dropped=OPTIONAL,
        nextn_predict_layers=1,
        leading_dense_block_count=1,
        expert_gating_func=2,
        expert_weights_scale=1.0,
        ssm__conv_kernel=4,
        kda__head_dim=32,
        kda__gate_lower_bound=-5.0,
        rope__dimension_count=32,
        attention__q_lora_rank=64,
        **SHARED | MLA,
    ),
}


TEXT: dict[str, Family] = {**ATTENTIVE, **RECURRENT}
FAMILIES: dict[str, Family] = {**TEXT, **TEXTLESS, **EMBEDDERS, **DRAFTING}
