"""A small draft model in PyTorch: Llama's architecture, narrower than its target, with the target's vocabulary.

Its embedding starts as the principal components of the target's, and is its output too. Knows tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runtime.training.layers import Layer, LayerShape, initialise, rotary


class DraftModel(nn.Module):
    """`table` [n_vocab, width] is fixed, except for the rows of the `kept` tokens [n], which are trained."""

    table: Tensor
    row: Tensor

    def __init__(self, shape: LayerShape, n_layers: int, table: Tensor, kept: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(n_layers))
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        initialise(self)
        self.words = nn.Parameter(table[kept].clone())
        row = torch.full((len(table),), -1, dtype=torch.long)
        row[kept] = torch.arange(len(kept))
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("row", row, persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings: [B, T] -> [B, T, width]."""
        rows = self.row[ids]
        return torch.where(rows[..., None] >= 0, self.words[rows.clamp(min=0)], self.table[ids])

    def forward(self, ids: Tensor) -> Tensor:
        """Return the normed output for the token after each: [B, T] -> [B, T, width]."""
        x = self.embed(ids)
        turns = rotary(torch.arange(ids.shape[1], device=ids.device), self.shape.head, self.shape.rope_base)
        for layer in self.layers:
            x = layer(x, turns)
        out: Tensor = self.norm(x)
        return out

    def whole_table(self) -> Tensor:
        """Return the table with the trained rows [n_vocab, width]."""
        return torch.where(self.row[:, None] >= 0, self.words.detach()[self.row.clamp(min=0)], self.table)
