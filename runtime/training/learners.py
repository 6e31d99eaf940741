"""Losses of drafts on samples of the target's own distributions (Agarwal et al., arXiv 2306.13649).

Knows tensors and samples; the trainer sets the number and the rate of steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from runtime.training.head_file import HeadFile
from runtime.training.layers import Head, unrolled
from runtime.training.samples import N_LIKELY, Sample
from runtime.training.target_words import TargetWords, floats

ROWS = 128  # rows whose logits exist at a time
N_STEPS = 3  # steps of drafting that a head is trained for together


class Lesson(NamedTuple):
    """The mean loss of one step of drafting on a batch, and for each prediction [n] whether it is the target's most
    likely token.
    """

    loss: Tensor
    right: Tensor


class Learner(ABC):
    """A draft in training, whose outputs are for the tokens `kept` [words] of the target's."""

    first = 2  # index of the first token of a text that is predicted

    def __init__(self, module: nn.Module, words: TargetWords, kept: NDArray[np.int64], device: torch.device) -> None:
        self.module, self.words, self.device = module.to(device), words, device
        self.kept = torch.from_numpy(kept).to(device)
        self.row = torch.full((words.n_vocab,), -1, dtype=torch.long, device=device)
        self.row[self.kept] = torch.arange(len(kept), device=device)

    @property
    def outputs(self) -> Tensor:
        """The rows of the output [words, width]: the module's own, if it has some."""
        return cast("Tensor", self.module.outputs)

    @abstractmethod
    def predictions(self, ids: Tensor, states: Tensor) -> Iterable[Tensor]:
        """Return the outputs' inputs [B, n, width] by step of drafting: those of step S predict the tokens from `first`
        + S on.

        `ids` [B, T] are the texts, `states` [B, T, values] the target's states.
        """

    def lessons(self, samples: Sequence[Sample]) -> list[Lesson]:
        """Return the lesson of each step of drafting."""
        batch = LessonBatch(samples, self.row)
        steps = enumerate(self.predictions(batch.tokens, batch.states), self.first)
        return [batch.lesson(each, first, self.outputs, self.kept) for first, each in steps]


class LessonBatch:
    """Samples, padded, with the target's distributions over a draft's vocabulary."""

    def __init__(self, samples: Sequence[Sample], row: Tensor) -> None:
        """`row` [n_vocab] is the index of a token in the draft's vocabulary, -1 for none."""
        shape = len(samples), max(len(sample.tokens) for sample in samples)
        tokens, ids = np.zeros(shape, dtype=np.int64), np.zeros((*shape, min(N_LIKELY, len(row))), dtype=np.int64)
        chances = np.full(ids.shape, -np.inf, dtype=np.float32)
        n_values = 0 if samples[0].states is None else samples[0].states.shape[1]
        states = np.zeros((*shape, n_values), dtype=np.float16)
        for i, sample in enumerate(samples):
            n, start = len(sample.tokens), sample.start
            assert sample.ids is not None
            tokens[i, :n], ids[i, start:n], chances[i, start:n] = sample.tokens, sample.ids, sample.chances
            if sample.states is not None:
                states[i, :n] = sample.states
        self.tokens, self.states = (torch.from_numpy(each).to(row.device) for each in (tokens, states))
        self.likeliest = torch.from_numpy(ids[..., 0]).to(row.device)
        self.places = row[torch.from_numpy(ids).to(row.device)]
        self.weights = torch.from_numpy(chances).to(row.device).exp() * (self.places >= 0)
        self.is_reply = torch.from_numpy(chances[..., 0] > -np.inf).to(row.device)

    def lesson(self, guesses: Tensor, first: int, outputs: Tensor, kept: Tensor) -> Lesson:
        """Return the lesson of predictions `guesses` [B, cells, width], the first of which is of token `first`.

        `outputs` [words, width] are the output rows of the tokens `kept` [words]. Only predictions from states that the
        target showed count.
        """
        n = guesses.shape[1]
        span, here = slice(first, first + n), self.is_reply[:, first : first + n]
        if self.states.shape[-1]:
            here = here & self.states[:, :n].any(-1)
        places = self.places[:, span][here].clamp(min=0)
        weights = self.weights[:, span][here]
        loss, guessed = CrossEntropy.apply(guesses[here], outputs, places, weights)  # type: ignore[no-untyped-call]
        return Lesson(loss, kept[guessed] == self.likeliest[:, span][here])


class HeadLearner(Learner):
    """Trains a head on its target's states."""

    module: Head

    def __init__(self, file: HeadFile, words: TargetWords, device: torch.device) -> None:
        output = file.output or words.output(np.arange(words.n_vocab))
        super().__init__(file.head, words, output.kept, device)
        self._rows = torch.from_numpy(floats(output.rows, output.kind)).to(device)

    @property
    def outputs(self) -> Tensor:
        """The target's output rows [words, width]."""
        return self._rows

    def predictions(self, ids: Tensor, states: Tensor) -> Iterable[Tensor]:
        """Return N_STEPS steps of drafting, on the head's own states after the first."""
        return unrolled(self.module, self.words.vectors, ids, states, N_STEPS)


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
