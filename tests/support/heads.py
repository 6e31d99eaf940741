"""EAGLE-3 heads with random weights: they go with a target and are never right but by chance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What a head is made for, and what of its own it has."""

    width: int  # of the target
    vocab: int
    layers: tuple[int, ...] = (0, 1, 1)
    heads: int = 2
    ffn: int = 64
    words: int = 0  # tokens that it drafts; 0: all, by the target's output
    own_table: bool = False
    unknown: int = 0  # added to the highest token that it drafts


def head_for(target: Path, words: int = 0, **more: int) -> HeadShape:
    """The shape that fits the target in that file."""
    facts = ModelFacts(read_model_header(target))
    n = facts.n_trunk_layers
    layers = (min(1, n - 1), n // 2, n - 1)
    return HeadShape(facts.own("embedding_length"), facts.n_vocab, layers, words=words, **more)


def write_head(path: Path, shape: HeadShape, seed: int = 0) -> Path:
    """Writes one without a vocabulary's words."""
    rng, width, length = np.random.default_rng(seed), shape.width, shape.width // shape.heads
    writer = GGUFWriter(str(path), "eagle3")
    writer.add_context_length(2048)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(length)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(shape.vocab)
    writer.add_array("eagle3.target_layers", list(shape.layers))
    writer.add_uint32("eagle3.target_hidden_size", width)
    matrices = {
        "fc.weight": (width, 3 * width), "blk.0.attn_q.weight": (width, 2 * width),
        "blk.0.attn_k.weight": (length, 2 * width), "blk.0.attn_v.weight": (length, 2 * width),
        "blk.0.attn_output.weight": (width, width), "blk.0.ffn_gate.weight": (shape.ffn, width),
        "blk.0.ffn_up.weight": (shape.ffn, width), "blk.0.ffn_down.weight": (width, shape.ffn),
    }  # fmt: skip
    if shape.own_table:
        matrices["token_embd.weight"] = shape.vocab, width
    if shape.words:
        matrices["output.weight"] = shape.words, width
        tokens = np.sort(rng.choice(shape.vocab, shape.words, replace=False)).astype(np.int64)
        tokens[-1] += shape.unknown
        writer.add_tensor("d2t", tokens, raw_dtype=GGMLQuantizationType.I64)
    for name, (rows, columns) in matrices.items():
        values = rng.standard_normal((rows, columns)) * columns**-0.5
        writer.add_tensor(name, values.astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", (1 + 0.1 * rng.standard_normal(width)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
