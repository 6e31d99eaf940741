"""Runs training steps. A checkpoint has the weights and the number of steps, from which a training is resumed.

Each batch and its rate are determined by the number of its step. Knows torch's optimizer; the learner computes losses.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.training.collecting import Stage
from runtime.training.learners import Learner, Lesson
from runtime.training.samples import UNREADABLE, Samples, read_arrays, write_arrays

DECAY = 0.8  # weight of a drafting step's loss, relative to the step before
BATCH_TOKENS = 2048
SIMILAR = 32  # tokens by which lengths may differ in a batch, so that little is padded
CHECKPOINT = 60.0  # seconds between two of them
REPORT_WINDOW = 50  # steps that a report averages
WARM_UP, LEAST = 0.03, 0.05  # shares of all steps, and of the highest rate


@dataclass(frozen=True, slots=True)
class Schedule:
    """The length and the rate of a training.

    If `seconds` would end it early, the rate follows the share of time: then two runs differ.
    """

    epochs: int = 8
    rate: float = 1e-3
    seconds: float = math.inf


class Trainer:
    """Trains on all of the samples in an order by `seed`, and resumes from `checkpoint` if that can be read."""

    def __init__(
        self, learner: Learner, samples: Samples, schedule: Schedule, seed: int, checkpoint: Path | None = None
    ) -> None:
        self.learner, self.samples, self.schedule, self.seed = learner, samples, schedule, seed
        self.step, self.checkpoint = 0, checkpoint
        parameters = learner.module.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.01)
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @cached_property
    def order(self) -> list[list[str]]:
        """The names of the samples of every step's batch."""
        lengths = lengths_in(self.samples)
        steps: list[list[str]] = []
        for epoch in range(self.schedule.epochs):
            rng = np.random.default_rng((self.seed, epoch))
            mixed = sorted(rng.permutation([*lengths]).tolist(), key=lambda name: lengths[name] // SIMILAR)
            batches = packed(mixed, lengths)
            steps += [batches[i] for i in rng.permutation(len(batches))]
        return steps

    def run(self, is_cancelled: Callable[[], bool] = lambda: False) -> Iterator[Stage]:
        """Yield the progress of every step. If cancelled, end after a checkpoint.

        Raises TrainingError if that cannot be written.
        """
        began = saved = time.monotonic()
        first, recent = self.step, deque[list[float]](maxlen=REPORT_WINDOW)
        n, limit = len(self.order), self.schedule.seconds
        while self.step < n and (passed := time.monotonic() - began) < limit and not is_cancelled():
            is_late = passed / limit > (self.step + 1) / n
            recent.append(self._learn(passed / limit if is_late else self.step / n))
            loss, *right = np.nanmean(recent, axis=0).tolist()
            now = time.monotonic()
            left = min((now - began) / (self.step - first) * (n - self.step), limit)
            yield Stage("training", self.step, n, loss, tuple(right), left)
            if now - saved > CHECKPOINT:
                self.save()
                saved = now
        self.save()

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
        lessons = self._lessons(self.samples, self.order[self.step])
        loss = sum(DECAY**i * lesson.loss for i, lesson in enumerate(lessons))
        assert isinstance(loss, torch.Tensor)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.learner.module.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return [lessons[0].loss.item(), *(lesson.right.float().mean().item() for lesson in lessons)]

    def _lessons(self, samples: Samples, names: Sequence[str]) -> list[Lesson]:
        return self.learner.lessons([samples.read(name) for name in names])

    def held_out(self, samples: Samples) -> list[NDArray[np.bool_]]:
        """Return for each prediction on samples that are not trained on whether it is right, by step of drafting."""
        with torch.no_grad():
            lengths = lengths_in(samples)
            found = [self._lessons(samples, batch) for batch in packed(sorted(lengths), lengths)]
        return [np.concatenate([lesson.right.cpu().numpy() for lesson in step]) for step in zip(*found, strict=True)]

    def save(self) -> None:
        """Write the checkpoint, if there is to be one. Raises TrainingError on failure."""
        if self.checkpoint is not None:
            weights = {name: weight.cpu().numpy() for name, weight in self.learner.module.state_dict().items()}
            write_arrays(self.checkpoint, {"step": self.step, **weights})

    def _resume(self, path: Path) -> None:
        """Resume from a checkpoint; one that cannot be read is ignored."""
        with suppress(*UNREADABLE):
            found = read_arrays(path)
            step = range(len(self.order) + 1)[int(found.pop("step"))]
            self.learner.module.load_state_dict({name: torch.from_numpy(each) for name, each in found.items()})
            self.step = step


def lengths_in(samples: Samples) -> dict[str, int]:
    """Return the number of tokens of each sample."""
    return {name: len(samples.read(name).tokens) for name in samples.names()}


def packed(names: Sequence[str], lengths: dict[str, int]) -> list[list[str]]:
    """Return batches of consecutive samples with BATCH_TOKENS tokens at most, padding included."""
    batches: list[list[str]] = []
    longest = 0
    for name in names:
        longest = max(longest, lengths[name])
        if not batches or longest * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
            longest = lengths[name]
        batches[-1].append(name)
    return batches


def slowed(share: float) -> float:
    """Return the rate at that share of all steps, relative to the highest: a linear warm-up, then a cosine."""
    warm = (share + 1e-3) / WARM_UP
    return min(warm, LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))
