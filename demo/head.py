"""An EAGLE-3 head for the demo target in PyTorch (Li et al., arXiv 2503.01840), and what it is trained to say.

One layer that reads a state and the token after it; a state is made of the inputs of three of the target's layers, and
behind what the target has read the head's own output stands for it. Knows tensors; knows nothing about text or files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from demo.model import Llama, Shape, rotary, rotate

READ = 4, 8, 11  # layers of the target whose inputs are read: the first is where it can exit early
FFN = 768
Cache = tuple[Tensor, Tensor]  # keys and values [B, H, cells, head]


class Shown(NamedTuple):
    """What the target shows of a batch."""

    states: Tensor  # [B, T, 3 * width]
    hidden: Tensor  # [B, T, width], the last one, normed


def shown(target: Llama, ids: Tensor) -> Shown:
    """Runs the target over ids [B, T]."""
    turns = rotary(torch.arange(ids.shape[1], device=ids.device), target.shape.head, target.shape.rope_base)
    x, states = target.embedding(ids), []
    for i, layer in enumerate(target.layers):
        if i in READ:
            states.append(x)
        x = layer(x, turns)
    return Shown(torch.cat(states, -1), target.norm(x))


class Head(nn.Module):
    """Its embedding and its output are the target's."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        s, width, kv = shape, shape.width, shape.kv_heads * shape.head
        self.shape = s
        self.fc = nn.Linear(len(READ) * width, width, bias=False)
        self.attn_norm, self.state_norm = nn.RMSNorm(width, s.norm_eps), nn.RMSNorm(width, s.norm_eps)
        self.ffn_norm, self.norm = nn.RMSNorm(width, s.norm_eps), nn.RMSNorm(width, s.norm_eps)
        self.q, self.o = nn.Linear(2 * width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = nn.Linear(2 * width, kv, bias=False), nn.Linear(2 * width, kv, bias=False)
        self.gate, self.up = nn.Linear(width, FFN, bias=False), nn.Linear(width, FFN, bias=False)
        self.down = nn.Linear(FFN, width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 if name in ("o.weight", "down.weight") else weight.shape[1] ** -0.5)

    def forward(
        self, words: Tensor, states: Tensor, turns: Tensor, past: Cache | None, mask: Tensor
    ) -> tuple[Tensor, Cache]:
        """Words and states [B, T, width] -> the states after them, and the keys and values of all cells."""
        s, (b, t, _) = self.shape, words.shape
        x = torch.cat([self.attn_norm(words), self.state_norm(states)], -1)
        q, k, v = (f(x).view(b, t, -1, s.head).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, turns).to(v.dtype), rotate(k, turns).to(v.dtype)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        wide = (z.repeat_interleave(s.heads // s.kv_heads, dim=1) for z in (k, v))
        x = states + self.o(F.scaled_dot_product_attention(q, *wide, attn_mask=mask).transpose(1, 2).flatten(2))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), (k, v)


def unrolled(head: Head, target: Llama, ids: Tensor, states: Tensor, n_steps: int) -> Iterator[Tensor]:
    """The head's normed output [B, cells, width] at each step of drafting (training-time test, section 3.2 there).

    Cell P of step S has read the true tokens up to P + 1 + S, and the target's states up to P; it guesses token
    P + 2 + S. It sees the cells of step 0 up to its own, and its own of the steps between.
    """
    n = ids.shape[1] - 1 - n_steps
    cells = torch.arange(n, device=ids.device)
    mask, own = cells[:, None] >= cells, torch.eye(n, dtype=torch.bool, device=ids.device)
    state, past = head.fc(states[:, :n].float()), None
    for step in range(n_steps):
        words = target.embedding(ids[:, 1 + step : 1 + step + n])
        turns = rotary(cells + step, head.shape.head, head.shape.rope_base)
        state, past = head(words, state, turns, past, mask)
        mask = torch.cat([mask, own], 1)
        yield head.norm(state)


def losses(
    head: Head, target: Llama, ids: Tensor, marks: Tensor, seen: Shown, n_steps: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each step, over the answers' tokens: mean loss against the target's distributions, and the share of guesses
    that are its likeliest token.
    """
    for step, output in enumerate(unrolled(head, target, ids, seen.states, n_steps)):
        n = output.shape[1]
        here = marks[:, 2 + step : 2 + step + n]
        with torch.no_grad():
            wanted = target.logits(seen.hidden[:, 1 + step : 1 + step + n][here].float()).softmax(-1)
        guess = target.logits(output[here])
        yield F.cross_entropy(guess, wanted), (guess.argmax(-1) == wanted.argmax(-1)).float().mean()
