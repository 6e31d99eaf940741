"""Writes heads that are computed here (Medusa, Hydra) as GGUF files, whose form runtime/models/own_heads.py describes.

Knows the form and arrays; knows no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, quants
from numpy.typing import NDArray

from runtime.drafters.network import NetworkShape, Rows
from runtime.models.own_heads import OWN, TABLE

BLOCK = 32  # values that Q8_0 quantizes together: other widths are written as F16


@dataclass(frozen=True, slots=True)
class OwnHeadFile:
    """The content of a head's file. `kept` are the tokens that it drafts, None for all."""

    kind: str
    shape: NetworkShape
    n_vocab: int
    target: str  # its name
    weights: Mapping[str, Rows]
    kept: NDArray[np.int64] | None = None


def write_own_head(path: Path, file: OwnHeadFile) -> None:
    """Write the head, matrices as Q8_0 and biases as F32; `path` appears only when complete. Raises OSError."""
    new, own = path.with_name(f"{path.name}.new"), f"{OWN}{file.kind}"
    writer = GGUFWriter(str(new), own)
    writer.add_name(f"{file.kind} for {file.target}")
    writer.add_file_type(LlamaFileType.MOSTLY_Q8_0)
    writer.add_embedding_length(file.shape.width)
    writer.add_vocab_size(file.n_vocab)
    writer.add_uint32(f"{own}.head_count", file.shape.n_heads)
    writer.add_uint32(f"{own}.layer_count", file.shape.n_layers)
    writer.add_string(f"{own}.target", file.target)
    if of := file.shape.attention:
        writer.add_head_count(of.n_heads)
        writer.add_head_count_kv(of.n_kv)
        writer.add_feed_forward_length(of.ffn)
        writer.add_rope_freq_base(of.rope_base)
        writer.add_layer_norm_rms_eps(of.norm_eps)
    for name, values in file.weights.items():
        add_rows(writer, name, values)
    if file.kept is not None:
        writer.add_tensor(TABLE, file.kept)
    finish(writer, new, path)


def add_rows(writer: GGUFWriter, name: str, values: Rows) -> None:
    """Add one tensor in the type in which it is written."""
    kind = GGMLQuantizationType.F16 if values.shape[-1] % BLOCK else GGMLQuantizationType.Q8_0
    kind = GGMLQuantizationType.F32 if values.ndim == 1 else kind
    writer.add_tensor(name, quants.quantize(np.ascontiguousarray(values, dtype=np.float32), kind), raw_dtype=kind)


def finish(writer: GGUFWriter, new: Path, path: Path) -> None:
    """Write the added content to `new`, and move it to `path`; on failure, no file remains."""
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
