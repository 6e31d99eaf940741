"""The EAGLE-3 head of the demo target: what it reads, and what it is trained to say.

Knows tensors; knows nothing about text or files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from demo.model import TARGET, Llama
from runtime.training.layers import Head, rotary, unrolled

READ = 4, 8, 11  # layers of the target whose inputs are read: the first is where it can exit early
SHAPE = replace(TARGET, ffn=768)


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


def losses(
    head: Head, target: Llama, ids: Tensor, marks: Tensor, seen: Shown, n_steps: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each step, over the answers' tokens: mean loss against the target's distributions, and the share of guesses
    that are its likeliest token.
    """
    for step, output in enumerate(unrolled(head, target.embedding, ids, seen.states, n_steps)):
        n = output.shape[1]
        here = marks[:, 2 + step : 2 + step + n]
        with torch.no_grad():
            wanted = target.logits(seen.hidden[:, 1 + step : 1 + step + n][here].float()).softmax(-1)
        guess = target.logits(output[here])
        yield F.cross_entropy(guess, wanted), (guess.argmax(-1) == wanted.argmax(-1)).float().mean()
