"""Trains an existing EAGLE-3 head further on texts that its target generated.

Memory is bounded: the target's samples of the texts are on disk meanwhile.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from runtime.training.head_file import read_head, write_head
from runtime.training.learners import HeadLearner
from runtime.training.samples import Samples, Text
from runtime.training.target_words import TargetWords
from runtime.training.teacher import Teacher
from runtime.training.trainer import Schedule, Trainer

HELD_OUT = 10  # one text in n is measured on and not trained on


@dataclass(frozen=True, slots=True)
class Refined:
    """Shares of correct predictions on held-out texts, by step of drafting."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    n_steps: int  # number of training steps


def refine(
    target: Path,
    head: Path,
    texts: Sequence[Text],
    path: Path,
    schedule: Schedule,
    seed: int = 0,
    is_cancelled: Callable[[], bool] = lambda: False,
    threads: int = 1,
    work: Path | None = None,
) -> Refined | None:
    """Train the head in the file `head` on `texts` and write the new one to `path`, which may be the same.

    `schedule` has the steps (`n_steps`, `epochs`), the `seconds` (of training alone), and the highest rate: 3e-4 or
    less, so that earlier skill is not lost. `work` is the folder for the samples (6 bytes for each value of three
    states of a token). Returns None if it was cancelled before any step or there is no text with a reply; if cancelled
    later, the partly trained head is written. The same input gives the same bytes on a processor with as many threads,
    if no `seconds` are set. Raises ModelError, TrainingError.
    """
    file = read_head(head)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        words = TargetWords(target)
        samples = Samples(Path(folder), words.n_vocab, len(file.reads) * file.head.shape.width)
        with Teacher(target, file.reads, threads) as teacher:
            if not read(texts, teacher, samples, is_cancelled):
                return None
        numbers = samples.numbers()
        apart = numbers[HELD_OUT - 1 :: HELD_OUT]
        learner = HeadLearner(file, words, torch.device("cpu"))
        trainer = Trainer(learner, samples, [number for number in numbers if number not in apart], schedule, seed)
        if not numbers:
            return None
        before = trainer.held_out(apart)
        for _ in trainer.run(is_cancelled):
            pass
        if not trainer.step:
            return None
        write_head(path, file)
        return Refined(before, trainer.held_out(apart), trainer.step)


def read(texts: Sequence[Text], teacher: Teacher, samples: Samples, is_cancelled: Callable[[], bool]) -> bool:
    """Compute and store the target's samples of the texts; return False when cancelled. Raises TrainingError."""
    for number, text in enumerate(texts):
        if is_cancelled():
            return False
        if text.is_readable:
            samples.write(number, teacher.read(text))
    return True
