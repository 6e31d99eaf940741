"""The demo models: Llama's architecture in PyTorch, with layer dropout and an early-exit head for training.

Knows tensors; knows nothing about text, training or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runtime.training.layers import Layer, LayerShape, rotary


@dataclass(frozen=True, slots=True)
class Shape(LayerShape):
    """A model's hyperparameters; `exit_layer` is how many layers the early exit runs (0: none)."""

    layers: int = 1
    exit_layer: int = 0
    vocab: int = 4096


TARGET = Shape(width=384, layers=12, heads=6, kv_heads=3, ffn=1024, exit_layer=4)
DRAFT = Shape(width=192, layers=2, heads=3, kv_heads=3, ffn=512)


class Llama(nn.Module):
    """Tied embeddings; `forward` gives hidden states after the last layer and at the exit, both normed.

    Layers above an exit begin as identities.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, shape.norm_eps)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("o.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=0.02 * scale if "embedding" in name else scale * weight.shape[1] ** -0.5)
        for layer in self.layers[shape.exit_layer :] if shape.exit_layer else ():
            nn.init.zeros_(layer.o.weight)
            nn.init.zeros_(layer.down.weight)

    def forward(self, tokens: Tensor, dropped: frozenset[int] = frozenset()) -> tuple[Tensor, Tensor | None]:
        """[B, T] ids -> ([B, T, width], the same at the exit layer or None); `dropped` layers are skipped."""
        x, early = self.embedding(tokens), None
        turns = rotary(torch.arange(tokens.shape[1], device=tokens.device), self.shape.head, self.shape.rope_base)
        for i, layer in enumerate(self.layers):
            if i not in dropped:
                x = layer(x, turns)
            if i + 1 == self.shape.exit_layer:
                early = self.norm(x)
        return self.norm(x), early

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., width] -> [..., vocab], in single precision whatever the layers run in."""
        return F.linear(hidden, self.embedding.weight).float()


def dropped_layers(shape: Shape, seed: int, most: float = 0.1) -> frozenset[int]:
    """Layers to skip in one step (LayerSkip, arXiv 2404.16710, section 4.1): the chance rises from 0 at the exit to
    `most` at the top.

    Layers below the exit are never skipped: all that was learned before the upper layers joined rests on them.
    """
    generator = torch.Generator().manual_seed(seed)
    depth = (torch.arange(shape.layers) - shape.exit_layer).clamp(min=0) / max(1, shape.layers - 1 - shape.exit_layer)
    chance = most * (torch.exp2(depth) - 1)
    return frozenset(torch.nonzero(torch.rand(shape.layers, generator=generator) < chance).flatten().tolist())
