"""Creates a small draft model from a target's file, and writes it as a GGUF with the target's own vocabulary.

Knows GGUF's names; knows nothing about training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray
from torch import Tensor

from runtime.training.draft_model import DraftModel
from runtime.training.head_file import NAMES, add_shape, add_weight
from runtime.training.layers import LayerShape
from runtime.training.own_head_file import finish
from runtime.training.target_words import TargetWords

ROWS_PER_READ = 4096  # rows of a table read in one piece


def begin_draft(shape: LayerShape, n_layers: int, words: TargetWords, kept: NDArray[np.int64]) -> DraftModel:
    """Return an untrained model whose embedding is derived from the target's."""
    return DraftModel(shape, n_layers, principal(words, shape.width), torch.from_numpy(kept))


def principal(words: TargetWords, width: int) -> Tensor:
    """Return the target's table on its first `width` principal axes [n_vocab, width], at an embedding's usual scale."""
    covariance = sum(piece.T.astype(np.float64) @ piece for piece in words.pieces(ROWS_PER_READ))
    _, axes = np.linalg.eigh(covariance)
    axes = axes[:, ::-1][:, :width].astype(np.float32)
    table = np.concatenate([piece @ axes for piece in words.pieces(ROWS_PER_READ)])
    return torch.from_numpy(table * (width**-0.5 / table.std()))


def write_draft(path: Path, model: DraftModel, target: Path, n_context: int, name: str) -> None:
    """Write the model; `path` appears only when complete. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    writer = GGUFWriter(str(new), "llama")
    add_shape(writer, model.shape, n_context, name)
    writer.add_block_count(len(model.layers))
    for key, field in GGUFReader(target).fields.items():
        if key.startswith("tokenizer."):
            is_list = field.types[0] == GGUFValueType.ARRAY
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if is_list else None)
    add_weight(writer, "token_embd.weight", model.whole_table())
    for parameter, weight in model.state_dict().items():
        first, *rest = parameter.split(".")
        if first == "layers":
            add_weight(writer, f"blk.{rest[0]}.{NAMES.get(rest[1], rest[1])}.weight", weight)
    add_weight(writer, "output_norm.weight", model.norm.weight)
    finish(writer, new, path)
