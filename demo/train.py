"""Makes the demo pair from nothing: `python -m demo.train` (extra `train`; on two CPU cores one to three hours).

The target follows the LayerSkip recipe (layer dropout rising with depth, early-exit loss; arXiv 2404.16710) after a
curriculum: at first all layers above the exit are dropped, which makes a step three times cheaper; they join as
identities when the exit has learned its text. The draft first learns the same text, then the target's own distributions
(distillation; Hinton et al., arXiv 1503.02531). Every batch and every dropped layer follows from (SEED, step), so a run
that was interrupted goes on from its checkpoint as if nothing had happened.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer
from torch import Tensor

from demo.conversations import HELD_OUT, Turn, epoch_turns
from demo.corpus import Entry, load
from demo.export import write_gguf
from demo.model import DRAFT, TARGET, Llama, Shape, dropped_layers
from demo.tokens import pack, train_tokenizer

HERE = Path(__file__).parent
SEED = 2404_16710
BATCH_TOKENS = 1024
EXIT_WEIGHT = 0.3
SAVE_EVERY, LOG_EVERY = 250, 50
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Elsewhere it is emulated, and slower
FAST_BF16 = DEVICE.type == "cuda" or torch.cpu.get_capabilities().get("amx_bf16", False)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained, in two phases: the second begins after `first` of the steps.

    In the first, layers above the exit rest; in the second, all run, and a model without an exit learns from the
    target.
    """

    name: str
    shape: Shape
    epochs: int
    first: float
    learning_rate: float


RECIPES = (
    Recipe("target", TARGET, epochs=134, first=112 / 134, learning_rate=2e-3),
    Recipe("draft", DRAFT, epochs=44, first=40 / 44, learning_rate=3e-3),
)


class Batches:
    """The training rows by epoch; every sixth has long conversations, so that positions up to 2,048 are learned."""

    def __init__(self, tokenizer: Tokenizer, entries: list[Entry]) -> None:
        self.tokenizer, self.entries = tokenizer, entries
        self.epoch = lru_cache(maxsize=1)(self._epoch)

    def _epoch(self, epoch: int) -> list[tuple[Tensor, Tensor]]:
        length = 2048 if epoch % 6 == 5 else 256
        ids, marks = pack(self.tokenizer, epoch_turns(self.entries, SEED + epoch), length, SEED + epoch)
        rows = max(1, BATCH_TOKENS // length)
        order = np.random.default_rng(SEED + epoch).permutation(len(ids))[: len(ids) // rows * rows].reshape(-1, rows)
        return [(torch.from_numpy(ids[rows]), torch.from_numpy(marks[rows])) for rows in order]

    def steps(self, epochs: int) -> list[tuple[int, int]]:
        """(epoch, batch within it) of every step."""
        return [(epoch, i) for epoch in range(epochs) for i in range(len(self.epoch(epoch)))]


def losses(
    model: Llama, ids: Tensor, marks: Tensor, dropped: frozenset[int], teacher: Llama | None
) -> tuple[Tensor, Tensor | None]:
    """Mean loss over the answers' tokens, at the end and at the early exit; against the teacher's distributions if
    there is one.
    """
    ids, marks = ids.to(DEVICE), marks.to(DEVICE)
    here = marks[:, 1:]
    hidden, early = model(ids[:, :-1], dropped)
    if early is not None and len(dropped) == model.shape.layers - model.shape.exit_layer:
        early = None  # the end is the exit
    if teacher is None:
        wanted = ids[:, 1:][here]
    else:
        with torch.no_grad():
            wanted = teacher.logits(teacher(ids[:, :-1])[0][here]).softmax(-1)
    early_loss = None if early is None else F.cross_entropy(model.logits(early[here]), wanted)
    return F.cross_entropy(model.logits(hidden[here]), wanted), early_loss


def recited(model: Llama, resting: frozenset[int], tokenizer: Tokenizer, entries: list[Entry]) -> float:
    """Share of entries whose whole answer is the most likely one, asked in a phrasing never trained on."""
    whole = 0
    with torch.no_grad():
        for entry in entries:
            ids, marks = (
                torch.from_numpy(x).to(DEVICE)
                for x in pack(tokenizer, [Turn(HELD_OUT.format(entry.name), entry.doc)], 256, 0)
            )
            guess = model.logits(model(ids[:, :-1], resting)[0]).argmax(-1)
            whole += bool((guess == ids[:, 1:])[marks[:, 1:]].all())
    return whole / len(entries)


def learning_rate(recipe: Recipe, done: float) -> float:
    """In each phase a linear warm-up over 3%, then a cosine down to a twentieth; the second starts at a sixth."""
    peak = recipe.learning_rate if done <= recipe.first else recipe.learning_rate / 6
    done = done / recipe.first if done <= recipe.first else (done - recipe.first) / (1 - recipe.first)
    return peak * min(done / 0.03, 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


class Run:
    """One model's training: its weights, optimizer, checkpoint and loss log."""

    def __init__(self, recipe: Recipe, work: Path) -> None:
        torch.manual_seed(SEED)
        self.recipe, self.checkpoint = recipe, work / f"{recipe.name}.pt"
        self.model = Llama(recipe.shape).to(DEVICE)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True
        )
        self.step, self.log = 0, [("step", "epoch", "loss", "exit_loss", "recited", "seconds")]
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, map_location=DEVICE, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.log = state["step"], [tuple(row) for row in state["log"]]

    def save(self) -> None:
        """Checkpoint and log, each whole or not at all."""
        new = self.checkpoint.with_suffix(".new")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "log": self.log,
        }
        torch.save(state, new)
        new.replace(self.checkpoint)
        with (HERE / f"{self.recipe.name}-loss.csv").open("w", newline="") as file:
            csv.writer(file).writerows(self.log)

    def _resting(self, done: float) -> frozenset[int]:
        """The layers that do not take part yet."""
        shape = self.recipe.shape
        return frozenset(
            range(shape.exit_layer, shape.layers) if shape.exit_layer and done <= self.recipe.first else ()
        )

    def train_step(self, ids: Tensor, marks: Tensor, done: float, teacher: Llama | None) -> tuple[float, float]:
        """One update; returns the two losses (the second NaN without an early exit)."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, done)
        dropped = self._resting(done)
        if self.recipe.shape.exit_layer and not dropped:
            dropped = dropped_layers(self.recipe.shape, SEED + self.step)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=FAST_BF16):
            loss, early = losses(self.model, ids, marks, dropped, teacher)
        total = loss if early is None else (loss + EXIT_WEIGHT * early) / (1 + EXIT_WEIGHT)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item(), math.nan if early is None else early.item()

    def run(self, batches: Batches, teacher: Llama | None) -> Iterator[tuple[int, int, str]]:
        """Trains to the end, saving now and then; yields (step, steps, what to show)."""
        steps = batches.steps(self.recipe.epochs)
        began, sums, score = time.monotonic(), np.zeros(2), math.nan
        for epoch, i in steps[self.step :]:
            done = (self.step + 1) / len(steps)
            learns_target = teacher if done > self.recipe.first else None
            sums += self.train_step(*batches.epoch(epoch)[i], done, learns_target)
            if self.step % LOG_EVERY == 0:
                if self.step % (8 * LOG_EVERY) == 0:
                    score = recited(self.model, self._resting(done), batches.tokenizer, batches.entries[::40])
                row = (self.step, epoch, *np.round(sums / LOG_EVERY, 4), score, round(time.monotonic() - began))
                self.log.append(tuple(float(x) for x in row))
                sums, score = np.zeros(2), math.nan
            if self.step % SAVE_EVERY == 0 or self.step == len(steps):
                self.save()
            loss, early = self.log[-1][2:4]
            yield self.step, len(steps), f"loss {loss} exit {early}" if self.step >= LOG_EVERY else ""


def main() -> None:
    """Trains what is not trained yet and writes `target.gguf` and `draft.gguf`."""
    parser = argparse.ArgumentParser(description="Train the demo pair.")
    parser.add_argument("--only", choices=[recipe.name for recipe in RECIPES])
    parser.add_argument("--work", type=Path, default=HERE / ".train", help="where checkpoints are kept")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    entries = load(HERE / "corpus.jsonl")
    batches = Batches(train_tokenizer(entries, args.work / "tokenizer.json"), entries)
    teacher = None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
    )
    with Progress(*columns) as progress:
        for recipe in RECIPES:
            run = Run(recipe, args.work)
            if args.only in (None, recipe.name):
                task = progress.add_task(recipe.name, total=None, shown="laying out the text, a minute")
                for step, steps, shown in run.run(batches, teacher):
                    progress.update(task, completed=step, total=steps, shown=shown)
                write_gguf(HERE / f"{recipe.name}.gguf", run.model, batches.tokenizer, f"Slipstream demo {recipe.name}")
            teacher = run.model


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("Interrupted. The same command goes on from the last checkpoint.") from None
    except OSError as error:
        raise SystemExit(
            f"{error}. Make room, or name another folder with --work; the same command goes on from the last "
            "checkpoint."
        ) from None
