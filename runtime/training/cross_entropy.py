"""Cross-entropy between the distributions of a draft and its target, over tens of thousands of tokens.

Few rows of logits exist at a time, so that memory does not grow with the batch. Gradients are computed in the forward
pass, so that no logits are computed twice. Knows tensors.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 128  # rows whose logits exist at a time


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
