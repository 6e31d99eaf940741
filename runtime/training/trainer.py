"""Runs training steps, and writes checkpoints from which they resume bit for bit, on a processor with as many threads.

Each step is determined by its number alone: the batch, the rate. Knows torch's optimizer; the learner computes losses.
"""

from __future__ import annotations

import math
import operator
import os
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from errno import ENOSPC
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch

from runtime.training.learners import Learner
from runtime.training.samples import Samples, damaged, discard, not_written

DECAY = 0.8  # weight of a drafting step's loss, relative to the step before
BATCH_TOKENS = 2048
POOL = 8  # batches whose texts are sorted by length together, so that little is padded
CHECKPOINT = 60.0  # seconds between two of them
REPORT_WINDOW = 50  # steps that a report averages
WARM_UP, LEAST = 0.03, 0.05  # shares of all steps, and of the highest rate
# Errors from files that are no checkpoints of this training
UNREADABLE = (
    OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, MemoryError, UnpicklingError,
    BadZipFile, struct.error, zlib.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length and the rate of a training.

    With `seconds`, time may end it early, and the rate follows the share of time: then two runs differ.
    """

    epochs: int = 8
    rate: float = 1e-3
    n_steps: int | None = None  # at most, whatever the number of epochs
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The progress of a training."""

    step: int
    n_steps: int
    loss: float
    right: tuple[float, ...]  # recent shares of correct predictions, by step of drafting
    seconds_left: float


class Trainer:
    """Trains on the samples with these numbers. A seed determines the order of texts."""

    def __init__(
        self, learner: Learner, samples: Samples, numbers: Sequence[int], schedule: Schedule, seed: int
    ) -> None:
        self.learner, self.samples, self.numbers = learner, samples, np.array(numbers)
        self.schedule, self.seed, self.step = schedule, seed, 0
        parameters = learner.module.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.01)

    @cached_property
    def _lengths(self) -> dict[int, int]:
        return {int(number): len(self.samples.read(int(number)).tokens) for number in self.numbers}

    def _epoch(self, epoch: int) -> list[list[int]]:
        """Return the batches of an epoch, as numbers of samples."""
        rng = np.random.default_rng((self.seed, epoch))
        mixed = rng.permutation(self.numbers).tolist()
        pool = POOL * BATCH_TOKENS // max(1, int(np.mean([*self._lengths.values()])))
        batches: list[list[int]] = []
        for at in range(0, len(mixed), max(1, pool)):
            batches += packed(sorted(mixed[at : at + max(1, pool)], key=self._lengths.__getitem__), self._lengths)
        return [batches[i] for i in rng.permutation(len(batches))]

    @cached_property
    def order(self) -> list[list[int]]:
        """The batch of every step."""
        steps = [batch for epoch in range(self.schedule.epochs) for batch in self._epoch(epoch)]
        return steps[: self.schedule.n_steps]

    def run(self, is_cancelled: Callable[[], bool], checkpoint: Path | None = None) -> Iterator[TrainingProgress]:
        """Resume from `checkpoint` if it exists, and yield the progress of every step. If cancelled, end after a
        checkpoint.

        Raises TrainingError if that cannot be written.
        """
        if checkpoint is not None and checkpoint.exists():
            self.resume(checkpoint)
        began = saved = time.monotonic()
        first, losses, right = self.step, deque[float](maxlen=REPORT_WINDOW), deque[list[float]](maxlen=REPORT_WINDOW)
        limit = self.schedule.seconds or math.inf
        while self.step < len(self.order) and (passed := time.monotonic() - began) < limit and not is_cancelled():
            found = self._learn(max(self.step / len(self.order), passed / limit))
            losses.append(found[0])
            right.append(found[1:])
            now = time.monotonic()
            left = min((now - began) / (self.step - first) * (len(self.order) - self.step), limit)
            shares = tuple(np.nanmean(right, axis=0).tolist())
            yield TrainingProgress(self.step, len(self.order), float(np.mean(losses)), shares, left)
            if checkpoint is not None and now - saved > CHECKPOINT:
                self.save(checkpoint)
                saved = now
        if checkpoint is not None:
            self.save(checkpoint)

    @property
    def is_done(self) -> bool:
        """Whether all steps are finished."""
        return self.step >= len(self.order)

    def _learn(self, share: float) -> list[float]:
        """Run one step at that share of the training; return its loss, and the shares of correct predictions by
        drafting step.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate * slowed(share)
        lessons = self.learner.lessons([self.samples.read(number) for number in self.order[self.step]])
        loss = sum(DECAY**i * lesson.loss for i, lesson in enumerate(lessons))
        assert isinstance(loss, torch.Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.learner.module.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return [lessons[0].loss.item(), *(lesson.right.item() for lesson in lessons)]

    def held_out(self, numbers: Sequence[int]) -> tuple[float, ...]:
        """Return the shares of correct predictions on samples that are not trained on, by step of drafting."""
        found = []
        with torch.no_grad():
            for batch in packed(sorted(numbers), {number: len(self.samples.read(number).tokens) for number in numbers}):
                lessons = self.learner.lessons([self.samples.read(number) for number in batch])
                found.append([lesson.right.item() for lesson in lessons])
        return tuple(np.nanmean(found, axis=0).tolist()) if found else ()

    def save(self, path: Path) -> None:
        """Write a checkpoint, completely or not at all. Raises TrainingError on failure."""
        state = {
            "step": self.step,
            "module": self.learner.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        new = path.with_name(f"{path.name}.new")
        try:
            with new.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except (OSError, RuntimeError) as error:  # torch's own writer raises the latter for a full disk
            discard(new)
            raise not_written(
                path.parent, error if isinstance(error, OSError) else OSError(ENOSPC, "no room")
            ) from error

    def resume(self, path: Path) -> None:
        """Resume from a checkpoint. Raises TrainingError if it is damaged."""
        try:
            with ZipFile(path) as archive:
                if archive.testzip():  # torch does not check the checksums that it writes
                    raise BadZipFile
            state = torch.load(path, weights_only=True)
            self.learner.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = range(len(self.order) + 1)[operator.index(state["step"])]
        except UNREADABLE as error:
            raise damaged(path) from error


def packed(numbers: Sequence[int], lengths: dict[int, int]) -> list[list[int]]:
    """Return batches of consecutive numbers with BATCH_TOKENS tokens at most, padding included."""
    batches: list[list[int]] = []
    longest = 0
    for number in numbers:
        longest = max(longest, lengths[number])
        if not batches or longest * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
            longest = lengths[number]
        batches[-1].append(number)
    return batches


def slowed(share: float) -> float:
    """Return the rate at that share of all steps, relative to the highest: a linear warm-up, then a cosine."""
    warm = (share + 1e-3) / WARM_UP
    return min(warm, LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))
