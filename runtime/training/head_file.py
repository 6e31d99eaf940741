"""Writes an EAGLE-3 head as a GGUF file, and reads it back for further training.

Knows GGUF's names; knows nothing about training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFWriter, LlamaFileType, quants

from runtime.core.errors import ModelError
from runtime.models.block_heads import layers_of
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.heads import EAGLE, TABLE, n_words, width_read
from runtime.training.layers import Head, LayerShape
from runtime.training.own_head_file import add_rows, finish
from runtime.training.target_words import OutputRows

NAMES = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
HEAD_NAMES = {
    "fc": "fc",
    "norm": "output_norm",
    "state_norm": "blk.0.attn_norm_2",
    **{name: f"blk.0.{NAMES.get(name, name)}" for name in (*NAMES, "attn_norm", "ffn_norm")},
}


@dataclass(frozen=True, slots=True)
class HeadFile:
    """The content of a head's file."""

    head: Head
    reads: tuple[int, ...]  # layers of the target whose inputs the head reads
    n_vocab: int  # of the target
    n_context: int
    name: str
    output: OutputRows | None = None  # None: the target's own, for all tokens


def write_head(path: Path, file: HeadFile) -> None:
    """Write the head, matrices as Q8_0 and norms as F32; `path` appears only when complete. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    writer = GGUFWriter(str(new), EAGLE)
    add_shape(writer, file.head.shape, file.n_context, file.name)
    writer.add_block_count(1)
    writer.add_vocab_size(file.n_vocab)
    writer.add_tokenizer_model("no_vocab")
    writer.add_array(f"{EAGLE}.target_layers", list(file.reads))
    writer.add_uint32(f"{EAGLE}.target_hidden_size", file.head.shape.width)
    for parameter, weight in file.head.state_dict().items():
        add_rows(writer, f"{HEAD_NAMES[parameter.removesuffix('.weight')]}.weight", weight.cpu().numpy())
    if file.output is not None:
        writer.add_tensor("output.weight", file.output.rows, raw_dtype=file.output.kind)
        writer.add_tensor(TABLE, file.output.kept)
    finish(writer, new, path)


def add_shape(writer: GGUFWriter, shape: LayerShape, n_context: int, name: str) -> None:
    """Add the metadata that all models have."""
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(n_context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_eps)


def read_head(path: Path) -> HeadFile:
    """Return a head from its file, in single precision. Raises ModelError if it is no EAGLE-3 head."""
    facts = ModelFacts(read_header(path))
    if facts.architecture != EAGLE or width_read(facts) != facts.own("embedding_length"):
        raise ModelError(f"{path.name} is not an EAGLE-3 head of its target's width, so it cannot be trained further.")
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    head = Head(shape_of(facts))
    names = {f"{name}.weight": f"{HEAD_NAMES[name]}.weight" for name in HEAD_NAMES}
    if lacking := [name for name in names.values() if name not in tensors]:
        raise ModelError(f"{path.name} has no {lacking[0]}, so it cannot be trained further.")
    try:
        head.load_state_dict(
            {
                parameter: torch.from_numpy(np.array(quants.dequantize(tensors[name].data, tensors[name].tensor_type)))
                for parameter, name in names.items()
            }
        )
    except RuntimeError as error:
        raise ModelError(f"{path.name} has weights whose shapes Slipstream cannot train.") from error
    output = None
    if TABLE in tensors and "output.weight" in tensors:
        rows = tensors["output.weight"]
        output = OutputRows(np.array(tensors[TABLE].data, np.int64), np.array(rows.data), rows.tensor_type)
    return HeadFile(head, layers_of(facts), n_words(facts), facts.n_context, facts.name, output)


def shape_of(facts: ModelFacts) -> LayerShape:
    """Return the shape of a layer from a header."""
    base, eps = (
        facts.header.metadata.get(f"{facts.architecture}.{key}")
        for key in ("rope.freq_base", "attention.layer_norm_rms_epsilon")
    )
    return LayerShape(
        facts.own("embedding_length"),
        facts.own("attention.head_count"),
        facts.own("attention.head_count_kv"),
        facts.own("feed_forward_length"),
        base if isinstance(base, float) else 10_000.0,
        eps if isinstance(eps, float) else 1e-5,
    )
