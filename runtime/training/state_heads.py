"""Medusa (arXiv 2401.10774) and Hydra heads (arXiv 2402.05109) in PyTorch, which read the target's last hidden state.

Knows tensors; their drafters compute the same in numpy. Hydra heads use rows of the target's output matrix. Medusa
heads only add to a state, which the target's matrix reads as the next token and not as a later one; so they train a
matrix for all heads, which starts as a faint copy of the target's.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from runtime.drafters.hydra import SKIP, HydraDrafter
from runtime.drafters.medusa import MedusaDrafter
from runtime.drafters.network import OUTPUT, NetworkShape, Rows, block_names
from runtime.training.learners import N_STEPS, Learner
from runtime.training.target_words import TargetWords, floats

MEDUSA, HYDRA = MedusaDrafter.name, HydraDrafter.name
FAINT = 0.1  # with the target's own matrix, most of a training goes into forgetting the next token
N_LAYERS = 1  # blocks of a head, as in the papers
SAMPLED = 1000  # tokens whose embeddings tell their usual size


class StateHeads(nn.Module):
    """All heads of a file. `output` [words, width] are rows of the target's output matrix; `scale` is the factor that
    gives its input embeddings a size of about 1.
    """

    def __init__(self, kind: str, shape: NetworkShape, output: Tensor, scale: float) -> None:
        super().__init__()
        self.kind, self.shape, self.scale = kind, shape, scale
        n, inputs = shape.width, [self.n_inputs(head) for head in range(shape.n_heads)]
        self.first = nn.ModuleList(nn.Linear(n_in, n) for n_in in inputs)
        self.skip = nn.ModuleList(nn.Linear(n_in, n) for n_in in inputs if kind == HYDRA)
        self.more = nn.ModuleList(
            nn.ModuleList(nn.Linear(n, n) for _ in range(shape.n_layers - 1)) for _ in range(shape.n_heads)
        )
        is_trained = kind == MEDUSA
        self.outputs = nn.Parameter(FAINT * output if is_trained else output, requires_grad=is_trained)
        for linear in (each for each in self.modules() if isinstance(each, nn.Linear)):
            nn.init.normal_(linear.weight, std=0.5 * linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)

    def n_inputs(self, head: int) -> int:
        """Return the number of values that a head reads."""
        return (head + 2 if self.kind == HYDRA else 1) * self.shape.width

    def forward(self, head: int, states: Tensor, words: Tensor) -> Tensor:
        """Return the features [B, n, width] of a head after states [B, n, width] and the vectors of the n + head + 1
        tokens after the first state [B, n + head + 1, width].
        """
        if self.kind == HYDRA:
            n = states.shape[1]
            read = [self.scale * words[:, i : i + n] for i in range(head + 1)]
            x = torch.cat([states, *read], -1)
            x = self.skip[head](x) + F.silu(self.first[head](x))
        else:
            x = states + F.silu(self.first[head](states))
        for linear in self.more[head]:  # type: ignore[union-attr]
            x = x + F.silu(linear(x))
        return x

    def weights(self) -> dict[str, Rows]:
        """Return the tensors of a file."""
        found: dict[str, Rows] = {}
        for head in range(self.shape.n_heads):
            linears = [self.first[head], *self.more[head]]  # type: ignore[misc]
            for layer, linear in enumerate(linears):
                found |= self._named(block_names(head, layer), linear)
            if self.kind == HYDRA:
                found |= self._named(block_names(head, 0, SKIP), self.skip[head])
        return found | ({OUTPUT: self.outputs.detach().cpu().numpy()} if self.outputs.requires_grad else {})

    def _named(self, names: tuple[str, str], linear: nn.Module) -> dict[str, Rows]:
        weight = linear.weight.detach().clone()
        weight[:, self.shape.width :] *= self.scale  # applied to embeddings as the target has them
        return {names[0]: weight.cpu().numpy(), names[1]: linear.bias.detach().cpu().numpy()}


class StateHeadLearner(Learner):
    """Trains heads that read the target's last hidden state: that of position P is known when token P + 1 is, and head
    i predicts token P + 2 + i.
    """

    module: StateHeads

    def predictions(self, ids: Tensor, states: Tensor) -> Iterable[Tensor]:
        """Return the features of each head."""
        vectors, n = self.words.vectors(ids)[:, 1:], ids.shape[1] - 2
        return [self.module(i, states[:, : n - i].float(), vectors) for i in range(self.module.shape.n_heads)]


def begin_heads(kind: str, words: TargetWords, kept: NDArray[np.int64]) -> StateHeads:
    """Return untrained heads that draft the tokens `kept`."""
    output = words.output(kept)
    rows = torch.from_numpy(floats(output.rows, output.kind))
    size = words.vectors(torch.from_numpy(kept[:SAMPLED])).pow(2).mean().sqrt().item()
    return StateHeads(kind, NetworkShape(rows.shape[1], N_STEPS, N_LAYERS), rows, 1 / max(size, 1e-6))
