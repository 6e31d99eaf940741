"""An EAGLE-3 head in PyTorch (Li et al., arXiv 2503.01840), and how it drafts while it is trained.

It is one layer that reads a hidden state and the token after it. A state consists of the inputs of three target layers;
beyond the text that the target has read, the head's own output replaces it. Knows tensors; knows nothing about text or
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runtime.training.layers import Cache, LayerShape, attend, initialise, parts, rotary, rotate

N_READ = 3  # layers of the target whose inputs are read
Lookup = Callable[[Tensor], Tensor]  # ids [...] -> the target's vectors [..., width]


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
