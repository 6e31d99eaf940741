"""Losses of a head and a draft model on samples of the target's own distributions (Agarwal et al., arXiv 2306.13649).

Knows tensors and samples; the trainer sets the number and the rate of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from runtime.training.draft_model import DraftModel
from runtime.training.head_file import HeadFile
from runtime.training.head_model import unrolled
from runtime.training.samples import Sample
from runtime.training.target_words import TargetWords, floats

ROWS = 128  # rows whose logits exist at a time
N_STEPS = 3  # steps of drafting that a head is trained for together


class Lesson(NamedTuple):
    """The mean loss of one step of drafting on a batch, and the share of predictions equal to the target's most likely
    token.
    """

    loss: Tensor
    right: Tensor


class Learner(Protocol):
    """A model in training."""

    @property
    def module(self) -> nn.Module:
        """The module with the weights."""

    def lessons(self, batch: Sequence[Sample]) -> list[Lesson]:
        """Return the lesson of each step of drafting."""


class TargetDistributions:
    """The target's distributions over a draft's vocabulary."""

    def __init__(self, batch: Sequence[Sample], length: int, row: Tensor, device: torch.device) -> None:
        """`row` [n_vocab] is the index of a token in the draft's vocabulary, -1 for none; `length` is that of the
        batch.
        """
        shape = len(batch), length, batch[0].ids.shape[1]
        ids, chances = np.zeros(shape, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
        for i, sample in enumerate(batch):
            ids[i, sample.start : len(sample.tokens)] = sample.ids
            chances[i, sample.start : len(sample.tokens)] = sample.chances
        self.likeliest = torch.from_numpy(ids[..., 0]).to(device)
        self.places = row[torch.from_numpy(ids).to(device)]
        self.weights = torch.from_numpy(chances).to(device).exp() * (self.places >= 0)
        self.is_reply = self.weights.new_tensor(chances[..., 0] > -np.inf, dtype=torch.bool)

    def lesson(self, guesses: Tensor, first: int, outputs: Tensor, kept: Tensor, known: Tensor | None = None) -> Lesson:
        """Return the lesson of predictions `guesses` [B, cells, width], the first of which is of token `first`.

        `outputs` [words, width] are the output rows of the tokens `kept` [words]. Only predictions from `known` states
        [B, cells] count.
        """
        span = slice(first, first + guesses.shape[1])
        here = self.is_reply[:, span] if known is None else self.is_reply[:, span] & known
        places = self.places[:, span][here].clamp(min=0)
        weights = self.weights[:, span][here]
        loss, guessed = CrossEntropy.apply(guesses[here], outputs, places, weights)  # type: ignore[no-untyped-call]
        right = kept[guessed] == self.likeliest[:, span][here]
        return Lesson(loss, right.float().mean())


def padded(batch: Sequence[Sample]) -> NDArray[np.int64]:
    """Return the ids of a batch, padded [B, T]."""
    ids = np.zeros((len(batch), max(len(sample.tokens) for sample in batch)), dtype=np.int64)
    for i, sample in enumerate(batch):
        ids[i, : len(sample.tokens)] = sample.tokens
    return ids


def states_of(batch: Sequence[Sample], length: int, n_values: int, device: torch.device) -> Tensor:
    """Return the target's states of a batch, padded with zeros [B, length, n_values]."""
    states = np.zeros((len(batch), length, n_values), dtype=np.float16)
    for i, sample in enumerate(batch):
        assert sample.states is not None
        states[i, : len(sample.states)] = sample.states
    return torch.from_numpy(states).to(device)


def places(kept: Tensor, n_vocab: int) -> Tensor:
    """Return the index of each token among the kept ones [n_vocab], -1 for others."""
    row = torch.full((n_vocab,), -1, dtype=torch.long, device=kept.device)
    row[kept] = torch.arange(len(kept), device=kept.device)
    return row


class HeadLearner:
    """Trains a head on its target's states."""

    def __init__(self, file: HeadFile, words: TargetWords, device: torch.device) -> None:
        self.file, self.words, self.device = file, words, device
        self.module = file.head.to(device)
        output = file.output or words.output(np.arange(words.n_vocab))
        self.kept = torch.from_numpy(output.kept).to(device)
        self.outputs = torch.from_numpy(floats(output.rows, output.kind)).to(device)
        self.row = places(self.kept, words.n_vocab)

    def lessons(self, batch: Sequence[Sample]) -> list[Lesson]:
        """Return the lessons of N_STEPS steps of drafting, on the head's own states after the first."""
        ids = torch.from_numpy(padded(batch)).to(self.device)
        wanted = TargetDistributions(batch, ids.shape[1], self.row, self.device)
        states = states_of(batch, ids.shape[1], self.module.fc.in_features, self.device)
        steps = unrolled(self.module, self.words.vectors, ids, states, N_STEPS)
        return [wanted.lesson(guesses, 2 + step, self.outputs, self.kept) for step, guesses in enumerate(steps)]


class DraftLearner:
    """Trains a small draft model."""

    def __init__(self, module: DraftModel, kept: NDArray[np.int64], device: torch.device) -> None:
        self.module, self.device = module.to(device), device
        self.kept = torch.from_numpy(kept).to(device)

    def lessons(self, batch: Sequence[Sample]) -> list[Lesson]:
        """Return one lesson: the prediction of the next token."""
        ids = torch.from_numpy(padded(batch)).to(self.device)
        wanted = TargetDistributions(batch, ids.shape[1], self.module.row, self.device)
        return [wanted.lesson(self.module(ids)[:, :-1], 1, self.module.words, self.kept)]


class CrossEntropy(torch.autograd.Function):
    """The mean loss over rows, and the most likely token of each row."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, outputs: Tensor, places: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean loss [] and the index of the most likely output of each row [n].

        `rows` [n, width] and `outputs` [words, width] give the logits. The target's probabilities are `weights` [n,
        likely] of the outputs with indices `places` [n, likely].
        """
        of_rows, of_outputs = (ctx.needs_input_grad[i] for i in range(2))
        total, likeliest = rows.new_zeros(()), places.new_zeros(len(rows))
        by_rows, by_outputs = torch.zeros_like(rows), torch.zeros_like(outputs) if of_outputs else None
        for at in range(0, len(rows), ROWS):
            here = slice(at, at + ROWS)
            chances = F.linear(rows[here], outputs).log_softmax(-1)
            likeliest[here] = chances.argmax(-1)
            total -= (weights[here] * chances.gather(1, places[here])).sum()
            if not (of_rows or of_outputs):
                continue
            slopes = chances.exp_().mul_(weights[here].sum(-1, keepdim=True))
            slopes.scatter_add_(1, places[here], -weights[here])
            by_rows[here] = slopes @ outputs
            if by_outputs is not None:
                by_outputs.addmm_(slopes.T, rows[here])
        ctx.save_for_backward(by_rows, by_outputs)
        ctx.mark_non_differentiable(likeliest)
        return total / len(rows), likeliest

    @staticmethod
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients by rows and by outputs."""
        by_rows, by_outputs = ctx.saved_tensors
        share = slope / len(by_rows)
        return share * by_rows, None if by_outputs is None else share * by_outputs, None, None
