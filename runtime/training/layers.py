"""Llama's layer in PyTorch, used by heads and draft models; and an EAGLE-3 head (Li et al., arXiv 2503.01840), and how
it drafts while it is trained.

Rotary pairs are adjacent (2i, 2i + 1), as in llama.cpp for the architectures "llama" and "eagle3", so that weights are
exported unchanged. A head is one layer that reads a hidden state and the token after it. A state consists of the inputs
of three target layers; beyond the text that the target has read, the head's own output replaces it. Knows tensors;
knows nothing about text or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = tuple[Tensor, Tensor]  # keys and values [B, H, cells, head]
N_READ = 3  # layers of the target whose inputs are read
Lookup = Callable[[Tensor], Tensor]  # ids [...] -> the target's vectors [..., width]


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


class Head(nn.Module):
    """The head's layer. The embedding and the output, for some or all tokens, are the target's."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        s, width, kv = shape, shape.width, shape.kv_heads * shape.head
        self.shape = s
        self.fc = nn.Linear(N_READ * width, width, bias=False)
        self.attn_norm, self.state_norm = nn.RMSNorm(width, s.norm_eps), nn.RMSNorm(width, s.norm_eps)
        self.ffn_norm, self.norm = nn.RMSNorm(width, s.norm_eps), nn.RMSNorm(width, s.norm_eps)
        self.q, self.o = nn.Linear(2 * width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(2 * width, kv, bias=False), nn.Linear(2 * width, kv, bias=False)
        self.gate, self.up = nn.Linear(width, s.ffn, bias=False), nn.Linear(width, s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, width, bias=False)
        initialise(self)

    def forward(
        self, words: Tensor, states: Tensor, turns: Tensor, past: Cache | None, mask: Tensor
    ) -> tuple[Tensor, Cache]:
        """Return the states after words and states [B, T, width], and the keys and values of all cells."""
        x = torch.cat([self.attn_norm(words), self.state_norm(states)], -1)
        q, k, v = parts(self.shape.head, self.q, self.k, self.v, of=x)
        q, k = rotate(q, turns).to(v.dtype), rotate(k, turns).to(v.dtype)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        x = states + self.o(attend(q, k, v, mask))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


def unrolled(head: Head, words: Lookup, ids: Tensor, states: Tensor, n_steps: int) -> Iterator[Tensor]:
    """Yield the head's normed output [B, cells, width] at each step of drafting (training-time test, section 3.2
    there).

    `ids` [B, T], `states` [B, T, N_READ * width]. Cell P of step S has read the true tokens up to P + 1 + S, and the
    target's states up to P; it predicts token P + 2 + S. It attends to the cells of step 0 up to its own, and to its
    own cell of the steps between.
    """
    n = ids.shape[1] - 1 - n_steps
    cells = torch.arange(n, device=ids.device)
    mask, own = cells[:, None] >= cells, torch.eye(n, dtype=torch.bool, device=ids.device)
    state, past = head.fc(states[:, :n].float()), None
    vectors = words(ids[:, 1 : n_steps + n])
    for step in range(n_steps):
        turns = rotary(cells + step, head.shape.head, head.shape.rope_base)
        state, past = head(vectors[:, step : step + n], state, turns, past, mask)
        mask = torch.cat([mask, own], 1)
        yield head.norm(state)
