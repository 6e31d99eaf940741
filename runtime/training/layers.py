"""Llama's layer in PyTorch, used by heads and draft models.

Knows tensors; knows nothing about text, training or files. Rotary pairs are adjacent (2i, 2i + 1), as in llama.cpp for
the architectures "llama" and "eagle3", so that weights are exported unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = tuple[Tensor, Tensor]  # keys and values [B, H, cells, head]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The dimensions that all layers of a model share."""

    width: int
    heads: int
    kv_heads: int
    ffn: int
    rope_base: float = 10_000.0
    norm_eps: float = 1e-5

    @property
    def head(self) -> int:
        """Dimension of one attention head."""
        return self.width // self.heads


def rotary(positions: Tensor, head: int, base: float) -> Tensor:
    """Return complex rotations [T, head / 2] for positions [T] (Su et al., arXiv 2104.09864)."""
    frequencies = base ** (-torch.arange(0, head, 2, dtype=torch.float32, device=positions.device) / head)
    angles = torch.outer(positions.float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Rotate adjacent pairs of x [B, H, T, head], in single precision: there are no complex numbers in BF16."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


def parts(n: int, *modules: nn.Module, of: Tensor) -> list[Tensor]:
    """Return the output of each module for [B, T, width], as heads of n values [B, H, T, n]."""
    return [module(of).unflatten(-1, (-1, n)).transpose(1, 2) for module in modules]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return attention with grouped queries: [B, H, T, head] over keys and values [B, KV, cells, head] -> [B, T, H *
    head].

    Without a mask it is causal.
    """
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
    seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
    return seen.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """Attention with grouped queries, then a SwiGLU network, each after RMSNorm."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        s, kv = shape, shape.kv_heads * shape.head
        self.shape = s
        self.attn_norm, self.ffn_norm = nn.RMSNorm(s.width, s.norm_eps), nn.RMSNorm(s.width, s.norm_eps)
        self.q, self.o = nn.Linear(s.width, s.width, bias=False), nn.Linear(s.width, s.width, bias=False)
        self.k, self.v = nn.Linear(s.width, kv, bias=False), nn.Linear(s.width, kv, bias=False)
        self.gate, self.up = nn.Linear(s.width, s.ffn, bias=False), nn.Linear(s.width, s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, s.width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Return the output of the layer: [B, T, width] -> [B, T, width]."""
        q, k, v = parts(self.shape.head, self.q, self.k, self.v, of=self.attn_norm(x))
        x = x + self.o(attend(rotate(q, turns), rotate(k, turns), v))
        y = self.ffn_norm(x)
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


def initialise(module: nn.Module) -> None:
    """Initialize the weights: matrices whose output is added to the residual start small."""
    for name, weight in module.named_parameters():
        if weight.dim() == 2:
            is_last = name.endswith(("o.weight", "down.weight"))
            nn.init.normal_(weight, std=0.02 if is_last else weight.shape[1] ** -0.5)
