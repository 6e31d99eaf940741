"""A small draft model in PyTorch: Llama's architecture, narrower than its target, with the target's vocabulary.

Its embedding starts as the principal components of the target's, and is its output too. Knows tensors, and how its file
is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from torch import Tensor, nn

from runtime.training.head_file import NAMES, add_shape
from runtime.training.layers import Layer, LayerShape, initialise, rotary
from runtime.training.learners import Learner
from runtime.training.own_head_file import add_rows, finish
from runtime.training.target_words import TargetWords

ROWS_PER_READ = 4096  # rows of a table read in one piece


class DraftModel(nn.Module):
    """`table` [n_vocab, width] is fixed, except for the rows of the `kept` tokens [n], which are trained: `outputs`."""

    table: Tensor
    row: Tensor

    def __init__(self, shape: LayerShape, n_layers: int, table: Tensor, kept: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(n_layers))
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        initialise(self)
        self.outputs = nn.Parameter(table[kept].clone())
        row = torch.full((len(table),), -1, dtype=torch.long)
        row[kept] = torch.arange(len(kept))
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("row", row, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the normed output for the token after each: [B, T] -> [B, T, width]."""
        rows = self.row[ids]
        x = torch.where(rows[..., None] >= 0, self.outputs[rows.clamp(min=0)], self.table[ids])
        turns = rotary(torch.arange(ids.shape[1], device=ids.device), self.shape.head, self.shape.rope_base)
        for layer in self.layers:
            x = layer(x, turns)
        out: Tensor = self.norm(x)
        return out

    def whole_table(self) -> Tensor:
        """Return the table with the trained rows [n_vocab, width]."""
        return torch.where(self.row[:, None] >= 0, self.outputs.detach()[self.row.clamp(min=0)], self.table)


class DraftLearner(Learner):
    """Trains a small draft model."""

    first = 1
    module: DraftModel

    def predictions(self, ids: Tensor, states: Tensor) -> Iterable[Tensor]:
        """Return the one step: the next token's. Reads no states."""
        return [self.module(ids)[:, :-1]]


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
    add_rows(writer, "token_embd.weight", model.whole_table().cpu().numpy())
    for parameter, weight in model.state_dict().items():
        first, *rest = parameter.split(".")
        if first == "layers":
            add_rows(writer, f"blk.{rest[0]}.{NAMES.get(rest[1], rest[1])}.weight", weight.cpu().numpy())
    add_rows(writer, "output_norm.weight", model.norm.weight.detach().cpu().numpy())
    finish(writer, new, path)
