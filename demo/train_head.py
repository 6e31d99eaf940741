"""Trains an EAGLE-3 head for the bundled target: `python -m demo.train_head HEAD.gguf` (extra `train`).

The target is read from its GGUF and runs once over each of a few epochs' texts; its states are kept in BF16.
The head learns the target's own distributions, a few steps of drafting at once, on its own states (arXiv 2503.01840).
"""

from __future__ import annotations

import argparse
import math
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, quants
from torch import Tensor

from demo.corpus import load
from demo.export import gguf_name, write_head
from demo.head import SHAPE, Head, Shown, losses, shown
from demo.model import TARGET, Llama
from demo.tokens import train_tokenizer
from demo.train import DEVICE, HERE, LOG_EVERY, SEED, Batches

N_STEPS = 3  # of drafting
DECAY = 0.8  # what a step counts for, of the one before
EPOCHS, TEXTS = 8, 2  # passes, and epochs of differently asked questions among them
RATE = 2e-3
# A single product is faster so, where a whole training of the target is not
FAST_BF16 = DEVICE.type == "cuda" or torch.cpu.get_capabilities().get("avx512_bf16", False)
N_HELD_OUT = 4  # batches of an epoch that is never trained on


def read_target(path: Path) -> Llama:
    """The target with the weights of its GGUF."""
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    found = {}
    target = Llama(TARGET)
    for name in target.state_dict():
        tensor = tensors[gguf_name(name)]
        found[name] = torch.from_numpy(np.array(quants.dequantize(tensor.data, tensor.tensor_type)))
    target.load_state_dict(found)
    return target.requires_grad_(False).to(DEVICE)


class Texts:
    """Batches with what the target shows of them, which is kept after the first time."""

    def __init__(self, batches: Batches, target: Llama) -> None:
        self.batches, self.target = batches, target
        self.batch = cache(self._batch)

    def _batch(self, epoch: int, i: int) -> tuple[Tensor, Tensor, Shown]:
        ids, marks = (each.to(DEVICE) for each in self.batches.epoch(epoch)[i])
        with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16, enabled=FAST_BF16):
            seen = shown(self.target, ids)
        return ids, marks, Shown(seen.states.bfloat16(), seen.hidden.bfloat16())

    def order(self, epochs: int) -> list[tuple[int, int]]:
        """(epoch of questions, batch within it) of every step."""
        sizes = [len(self.batches.epoch(epoch)) for epoch in range(TEXTS)]
        orders = [np.random.default_rng(epoch).permutation(sizes[epoch % TEXTS]) for epoch in range(epochs)]
        return [(epoch % TEXTS, int(i)) for epoch, order in enumerate(orders) for i in order]

    def losses(self, head: Head, epoch: int, i: int) -> list[tuple[Tensor, Tensor]]:
        """The loss of each step of drafting on a batch, and the share of guesses that are right."""
        ids, marks, seen = self.batch(epoch, i)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=FAST_BF16):
            return list(losses(head, self.target, ids, marks, seen, N_STEPS))


def rate(done: float) -> float:
    """A linear warm-up over 3%, then a cosine down to a twentieth."""
    return RATE * min(done / 0.03, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def train(head: Head, texts: Texts, epochs: int) -> Iterator[tuple[int, int, list[float]]]:
    """Yields (step, steps, shares of right guesses by step of drafting)."""
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01)
    order = texts.order(epochs)
    for number, (epoch, i) in enumerate(order, 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(number / len(order))
        found = texts.losses(head, epoch, i)
        sum(DECAY**step * loss for step, (loss, _) in enumerate(found)).backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield number, len(order), [share.item() for _, share in found]


def held_out(head: Head, texts: Texts) -> list[float]:
    """Shares of right guesses, by step of drafting, on questions that were never asked."""
    with torch.no_grad():
        found = [[share.item() for _, share in texts.losses(head, TEXTS, i)] for i in range(N_HELD_OUT)]
    return np.mean(found, axis=0).tolist()


def main() -> None:
    """Trains it and writes it."""
    parser = argparse.ArgumentParser(description="Train an EAGLE-3 head for the bundled target.")
    parser.add_argument("file", type=Path, help="the GGUF to write")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, default=HERE / ".train", help="where the tokenizer is kept")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    args.work.mkdir(parents=True, exist_ok=True)
    entries = load(HERE / "corpus.jsonl")
    batches = Batches(train_tokenizer(entries, args.work / "tokenizer.json"), entries)
    texts, head, began = Texts(batches, read_target(HERE / "target.gguf")), Head(SHAPE).to(DEVICE), time.monotonic()
    lately = deque[list[float]](maxlen=LOG_EVERY)
    for step, steps, right in train(head, texts, args.epochs):
        lately.append(right)
        if step % LOG_EVERY == 0 or step == steps:
            shares = " ".join(f"{share:.3f}" for share in np.mean(lately, axis=0))
            print(f"{step} of {steps}, {time.monotonic() - began:.0f} s: right {shares}", flush=True)
            write_head(args.file, head, "Slipstream demo head")
    print("held out: right", " ".join(f"{share:.3f}" for share in held_out(head, texts)))


if __name__ == "__main__":
    main()
