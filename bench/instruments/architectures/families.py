"""The families by name: those with recurrent layers, which keep a state instead of keys and values, in all layers or in
some; those with drafting layers of their own; and all together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.instruments.architectures.attentive import ATTENTIVE, EMBEDDERS, TEXTLESS
from bench.instruments.architectures.family import EPSILON, MLA, MOE, SSM_BIASES, WINDOW, Family, Value, usual

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


MAMBA: dict[str, Any] = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 256,
    "ssm__state_size": 16,
    "ssm__time_step_rank": 8,
}
MAMBA2: dict[str, Any] = MAMBA | {"ssm__state_size": 32, "ssm__group_count": 1}
DELTA: dict[str, Any] = {
    "ssm__conv_kernel": 4,
    "ssm__inner_size": 128,
    "ssm__state_size": 32,
    "ssm__time_step_rank": 4,
    "ssm__group_count": 2,
    "full_attention_interval": 4,
}
SECTIONS: dict[str, Any] = {"rope__dimension_count": 16, "rope__dimension_sections": [3, 3, 2, 0]}
ONE_IN_FOUR = [0, 0, 2, 0]  # heads of keys and values, by layer
ONE_IN_SIX = [0, 0, 2, 0, 0, 0]
FFN_EVERY_OTHER = [0, 256, 0, 256, 0, 256]
NEMOTRON: dict[str, Any] = {"attention__layer_norm_epsilon": 1e-5, **MAMBA2}
BIASES_OF_RWKV = r"norm(_2)?\.bias|time_mix_ln\.bias|token_embd_norm\.bias|output_norm\.bias"

RECURRENT: dict[str, Family] = {
    "lfm2": usual("lfm2", kv_heads=ONE_IN_FOUR, is_tied=True, shortconv__l_cache=3),
    "lfm2moe": usual(
        "lfm2moe",
        kv_heads=ONE_IN_FOUR,
        is_tied=True,
        biases="exp_probs_b",
        shortconv__l_cache=3,
        leading_dense_block_count=1,
        expert_gating_func=2,
        **MOE,
    ),
    "granitehybrid": usual(
        "granitehybrid",
        kv_heads=ONE_IN_FOUR,
        is_tied=True,
        biases=SSM_BIASES,
        logit_scale=1.0,
        rope__dimension_count=32,
        **MAMBA2,
    ),
    "nemotron_h": usual(
        "nemotron_h", layers=6, ffn=FFN_EVERY_OTHER, kv_heads=ONE_IN_SIX, biases=SSM_BIASES, **NEMOTRON
    ),
    "nemotron_h_moe": usual(
        "nemotron_h_moe",
        layers=6,
        ffn=FFN_EVERY_OTHER,
        kv_heads=ONE_IN_SIX,
        biases=f"{SSM_BIASES}|exp_probs_b",
        expert_shared_feed_forward_length=96,
        expert_shared_count=1,
        expert_weights_norm=True,
        expert_weights_scale=1.0,
        **NEMOTRON | MOE,
    ),
    "falconh1": usual("falcon-h1", head=32, biases=SSM_BIASES, rope__dimension_count=32, **MAMBA2),
    "mamba": usual("mamba", heads=0, ffn=0, biases=SSM_BIASES, **MAMBA),
    "mamba2": usual("mamba2", heads=0, ffn=0, biases=SSM_BIASES, **MAMBA2),
    "jamba": usual("jamba", kv_heads=ONE_IN_FOUR, is_tied=True, biases=SSM_BIASES, **MAMBA),
    "rwkv7": usual(
        "rwkv7",
        heads=0,
        epsilon=EPSILON,
        biases=BIASES_OF_RWKV,
        wkv__head_size=64,
        attention__decay_lora_rank=32,
        attention__iclr_lora_rank=32,
        attention__value_residual_mix_lora_rank=32,
        attention__gate_lora_rank=32,
        token_shift_count=2,
    ),
    "qwen3next": usual(
        "qwen3next",
        head=64,
        biases=SSM_BIASES,
        dropped="nextn",
        expert_shared_feed_forward_length=96,
        rope__dimension_count=16,
        **DELTA | MOE,
    ),
    "qwen35": usual("qwen35", head=64, is_tied=True, biases=SSM_BIASES, **DELTA | SECTIONS),
    "qwen35moe": usual(
        "qwen35moe",
        head=64,
        is_tied=True,
        biases=SSM_BIASES,
        expert_shared_feed_forward_length=96,
        **DELTA | SECTIONS | MOE,
    ),
    "kimilinear": usual(
        "kimi-linear",
        kv_heads=[0, 0, 0, 1],
        biases="exp_probs_b|ssm_dt",
        leading_dense_block_count=1,
        expert_shared_count=1,
        expert_gating_func=2,
        expert_weights_scale=1.0,
        ssm__conv_kernel=4,
        kda__head_dim=32,
        rope__dimension_count=32,
        **MLA | MOE,
    ),
}


def with_layer(family: Family, **more: Value) -> Family:
    """Return the family with an additional drafting layer."""
    n_layers = family.metadata["block_count"]
    assert isinstance(n_layers, int)
    own = {"block_count": n_layers + 1, "nextn_predict_layers": 1}
    return replace(family, metadata={**family.metadata, **own, **more}, dropped=OPTIONAL)


def drafting(architecture: str, **more: Any) -> Family:
    """Return a family with a drafting layer, the last of five unless `layers` says otherwise."""
    return usual(architecture, **{"layers": 5, "dropped": OPTIONAL, "nextn_predict_layers": 1, **more})


def step35(n_drafting: int) -> Family:
    """Return the family with `n_drafting` drafting layers."""
    return drafting(
        "step35",
        layers=4 + n_drafting,
        head=32,
        biases="exp_probs_b",
        nextn_predict_layers=n_drafting,
        rope__dimension_count=32,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=[False, True, True, False, *[True] * n_drafting],
        **SHARED,
    )


RECURRENT["qwen35mtp"] = with_layer(RECURRENT["qwen35"])
DRAFTING: dict[str, Family] = {
    "qwen35moemtp": with_layer(RECURRENT["qwen35moe"]),
    "qwen3nextmtp": with_layer(RECURRENT["qwen3next"]),
    "deepseek2mtp": with_layer(ATTENTIVE["deepseek2"]),
    "deepseek4mtp": with_layer(ATTENTIVE["deepseek4"], **{"attention.compress_ratios": [0, 0, 4, 128, 0]}),
    "deepseek32": drafting(
        "deepseek32",
        kv_heads=1,
        biases="exp_probs_b|indexer",
        expert_gating_func=2,
        expert_weights_scale=1.0,
        **SHARED | LATENT | INDEXED,
    ),
    "glmdsa": drafting(
        "glm-dsa",
        kv_heads=1,
        biases="exp_probs_b|indexer",
        expert_weights_scale=1.0,
        **SHARED | LATENT | INDEXED,
    ),
    "nemotron_h_moe_mtp": drafting(
        "nemotron_h_moe",
        layers=7,
        ffn=[0, 256, 0, 256, 0, 256, 256],
        kv_heads=[0, 0, 2, 0, 0, 0, 2],
        biases=f"{SSM_BIASES}|exp_probs_b",
        expert_weights_norm=True,
        expert_weights_scale=1.0,
        **NEMOTRON | SHARED,
    ),
    "step35": step35(1),
    "step35three": step35(3),
    "mimo2": drafting(
        "mimo2",
        head=32,
        biases="exp_probs_b",
        dropped=rf"{OPTIONAL}|blk\.4\.(ffn_\w*(exps|inp)|exp_probs)",
        rope__dimension_count=32,
        attention__sliding_window=WINDOW,
        attention__sliding_window_pattern=[False, True, True, False, True],
        **MOE,
    ),
    "hy_v3": drafting(
        "hy_v3",
        head=32,
        biases="exp_probs_b",
        leading_dense_block_count=1,
        **SHARED,
    ),
    "cohere2moe": drafting(
        "cohere2moe",
        head=32,
        epsilon=EPSILON,
        is_tied=True,
        leading_dense_block_count=1,
        attention__sliding_window=WINDOW,
        logit_scale=1.0,
        rope__dimension_count=32,
        **SHARED,
    ),
    "bailingmoe3": drafting(
        "bailingmoe3",
        kv_heads=[0, 0, 0, 1, 1],
        biases="exp_probs_b|ssm_dt",
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
