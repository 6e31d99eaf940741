"""Losses of Medusa and Hydra heads: each predicts a token further ahead of the same state, on the target's own text.

Knows tensors and samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.drafters.network import NetworkShape
from runtime.training.learners import N_STEPS, Lesson, TargetDistributions, padded, places, states_of
from runtime.training.samples import Sample
from runtime.training.state_head_model import StateHeads
from runtime.training.target_words import TargetWords, floats

N_LAYERS = 1  # blocks of a head, as in the papers
SAMPLED = 1000  # tokens whose embeddings tell their usual size


def begin_heads(kind: str, words: TargetWords, kept: NDArray[np.int64]) -> StateHeads:
    """Return untrained heads that draft the tokens `kept`."""
    output = words.output(kept)
    rows = torch.from_numpy(floats(output.rows, output.kind))
    size = words.vectors(torch.from_numpy(kept[:SAMPLED])).pow(2).mean().sqrt().item()
    return StateHeads(kind, NetworkShape(rows.shape[1], N_STEPS, N_LAYERS), rows, 1 / max(size, 1e-6))


class StateHeadLearner:
    """Trains heads that read the target's last hidden state."""

    def __init__(self, module: StateHeads, words: TargetWords, kept: NDArray[np.int64], device: torch.device) -> None:
        self.module, self.words, self.device = module.to(device), words, device
        self.kept = torch.from_numpy(kept).to(device)
        self.row = places(self.kept, words.n_vocab)

    def lessons(self, batch: Sequence[Sample]) -> list[Lesson]:
        """Return the lesson of each head: the state of position P is known when token P + 1 is, and head i predicts
        token P + 2 + i.
        """
        ids = torch.from_numpy(padded(batch)).to(self.device)
        length, width = ids.shape[1], self.module.shape.width
        wanted = TargetDistributions(batch, length, self.row, self.device)
        states = states_of(batch, length, width, self.device).float()
        vectors, known = self.words.vectors(ids), states.any(-1)
        return [
            self._lesson(head, wanted, states[:, : length - 2 - head], vectors[:, 1:], known)
            for head in range(self.module.shape.n_heads)
        ]

    def _lesson(self, head: int, wanted: TargetDistributions, states: Tensor, vectors: Tensor, known: Tensor) -> Lesson:
        features = self.module(head, states, vectors)
        return wanted.lesson(features, 2 + head, self.module.output, self.kept, known[:, : states.shape[1]])
