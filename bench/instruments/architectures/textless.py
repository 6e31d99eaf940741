"""Families that generate no text from left to right and must be refused: encoders, embeddings, diffusion."""

from __future__ import annotations

from bench.instruments.architectures.family import (
    ALL_BIASES,
    EPSILON,
    QKV_BIASES,
    SPM,
    WINDOW,
    WORDPIECE,
    Family,
    usual,
)

MEAN, LAST = 1, 3  # values of llama.h's enum llama_pooling_type

TEXTLESS: dict[str, Family] = {
    "dream": usual("dream", biases=QKV_BIASES),
    "t5": usual("t5", SPM, kv_heads=4, head=32, attention__relative_buckets_count=8, decoder_start_token_id=0),
    "bert": usual(
        "bert",
        WORDPIECE,
        kv_heads=4,
        epsilon=EPSILON,
        context=512,
        biases=ALL_BIASES,
        attention__causal=False,
        pooling_type=MEAN,
    ),
    "embeddinggemma": usual(
        "gemma-embedding",
        SPM,
        head=64,
        kv_heads=1,
        is_tied=True,
        attention__sliding_window=WINDOW,
        attention__causal=False,
        pooling_type=MEAN,
    ),
}
# An embedding model based on a generating one: it loads, and is refused when it has to generate
EMBEDDERS: dict[str, Family] = {"qwen3embedding": usual("qwen3", head=64, is_tied=True, pooling_type=LAST)}
