"""The two doors of training: `train` makes a draft of collected samples, `train_further` a better head of an existing
one. Both run the same trainer.

Knows samples and learners. The caller decides whether the draft is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.core.errors import StoppedError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.trimmed import choose
from runtime.training.collecting import APART, SAMPLES, Cancel, Report, samples_in, teacher_of
from runtime.training.conditions import TrainingError
from runtime.training.draft_model import DraftLearner, DraftModel, principal, write_draft
from runtime.training.head_file import HeadFile, read_head, write_head
from runtime.training.job import HEAD, HEAD_DIM, MODEL, N_LAYERS, Job, draft_width, layers_read, n_words
from runtime.training.layers import Head, LayerShape
from runtime.training.learned_head import Measured
from runtime.training.learners import HeadLearner, Learner
from runtime.training.own_head_file import OwnHeadFile, write_own_head
from runtime.training.samples import Sample, Samples, not_written
from runtime.training.state_heads import StateHeadLearner, begin_heads
from runtime.training.target_words import TargetWords
from runtime.training.trainer import BATCH_TOKENS, Schedule, Trainer

CHECKPOINT, DRAFT = "checkpoint.npz", "draft.gguf"
RATE = 6e-4  # of a head's further training; a loss of earlier skill is found by the measurement
STEPS, MAX_EPOCHS = 80, 24  # fewer steps teach little; more epochs over few texts teach those texts only
SECONDS = 600.0
Write = Callable[[Path], None]  # of the draft's file


def require_device(name: str) -> None:
    """Raise TrainingError if there is no such device."""
    is_there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not is_there.get(name):
        raise TrainingError(f"PyTorch finds no device {name!r} here. Leave out `--device` to train on the processor.")


def train(job: Job, work: Path, report: Report, is_cancelled: Cancel) -> tuple[Path, float, float]:
    """Train on the collected samples, and write the draft to a file in `work`.

    Returns its path, and the shares of correct first predictions on held-out texts before and after. Raises
    StoppedError when cancelled, after a checkpoint; TrainingError; ModelError if the target was changed.
    """
    try:
        return trained(job, work, report, is_cancelled)
    except RuntimeError as error:  # from PyTorch, also when memory runs out
        raise TrainingError(
            f"PyTorch failed ({str(error).strip().splitlines()[0]}). Close other programs and run the same "
            "command again: it resumes where it stopped."
        ) from error


def trained(job: Job, work: Path, report: Report, is_cancelled: Cancel) -> tuple[Path, float, float]:
    """Train as `train` does, with PyTorch's errors left to the caller."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    samples, apart = (samples_in(job, work, name) for name in (SAMPLES, APART))
    learner, write = begun(job, samples)
    before = float(Trainer(learner, samples, Schedule(), job.seed).held_out(apart)[0].mean())
    trainer = Trainer(learner, samples, Schedule(job.epochs), job.seed, work / CHECKPOINT)
    for stage in trainer.run(is_cancelled):
        report(stage)
    if not trainer.is_done:
        raise StoppedError
    job.check(work)
    try:
        write(work / DRAFT)
    except OSError as error:
        raise not_written(work, error) from error
    return work / DRAFT, before, float(trainer.held_out(apart)[0].mean())


def begun(job: Job, samples: Samples) -> tuple[Learner, Write]:
    """Return the learner of an untrained draft, and the function that writes the draft to a file."""
    facts, words, device = ModelFacts(read_model_header(job.target)), TargetWords(job.target), torch.device(job.device)
    kept, name = kept_words(samples, facts), f"{job.kind} for {facts.name or job.target.stem}"
    is_cut = len(kept) < facts.n_vocab
    if job.kind == HEAD:
        head = Head(shape(facts.own("embedding_length")))
        output = words.output(kept) if is_cut else None
        file = HeadFile(head, layers_read(facts), facts.n_vocab, facts.n_context, name, output)
        return HeadLearner(file, words, device), lambda path: write_head(path, file)
    if job.kind == MODEL:
        narrow = shape(draft_width(facts))
        model = DraftModel(narrow, N_LAYERS, principal(words, narrow.width), torch.from_numpy(kept))
        learner = DraftLearner(model, words, kept, device)
        return learner, lambda path: write_draft(path, model, job.target, facts.n_context, name)
    heads, of = begin_heads(job.kind, words, kept), facts.name or job.target.stem
    learned, table = StateHeadLearner(heads, words, kept, device), kept if is_cut else None
    return learned, lambda path: write_own_head(
        path, OwnHeadFile(job.kind, heads.shape, facts.n_vocab, of, heads.weights(), table)
    )


def kept_words(samples: Samples, facts: ModelFacts) -> NDArray[np.int64]:
    """Return the target's tokens that a draft of these samples may predict."""
    counts = np.zeros(facts.n_vocab, dtype=np.int64)
    for sample in map(samples.read, samples.names()):
        counts += np.bincount(sample.tokens[sample.start :], minlength=facts.n_vocab)
    return choose(facts, counts, n_words(facts)).astype(np.int64)


def shape(width: int) -> LayerShape:
    """Return the shape of a draft's layer of that width."""
    heads = width // HEAD_DIM
    return LayerShape(
        width, heads, next(n for n in (heads // 3, heads // 4, heads // 2, heads) if n and heads % n == 0), 2 * width
    )


def train_further(
    target: Path, head: Path, learned: Sequence[Sample], apart: Sequence[Sample], new: Path, seed: int
) -> Measured:
    """Train the EAGLE-3 head in the file `head` on texts of its target for a few minutes in one thread, and write it to
    the file `new`, in whose folder the target's samples (6 bytes for each value of three states of a token) are kept
    meanwhile.

    Returns its measurement on the texts `apart`. The same input gives the same bytes, unless it takes longer than
    SECONDS. Raises ModelError, TrainingError.
    """
    file, words = read_head(head), TargetWords(target)
    torch.set_num_threads(1)
    folders = [new.with_suffix(f".{name}") for name in (SAMPLES, APART)]
    samples, others = (Samples(path, words.n_vocab, len(file.reads) * file.head.shape.width) for path in folders)
    with teacher_of(target, file.reads) as teacher:
        for store, texts in ((samples, learned), (others, apart)):
            store.folder.mkdir(0o700)
            for number, text in enumerate(texts):
                if text.is_readable:
                    store.write(f"{number:06}", teacher.read(text))
    if not samples.names() or not others.names():
        raise TrainingError("Too few drafts were rejected to learn from. More replies bring more.")
    n_batches = max(1, sum(len(text.tokens) for text in learned) // BATCH_TOKENS)
    schedule = Schedule(min(MAX_EPOCHS, -(-STEPS // n_batches)), RATE, SECONDS)
    trainer = Trainer(HeadLearner(file, words, torch.device("cpu")), samples, schedule, seed)
    before = trainer.held_out(others)
    for _ in trainer.run():
        pass
    write_head(new, file)
    return measured(before, trainer.held_out(others))


def measured(before: Sequence[NDArray[np.bool_]], after: Sequence[NDArray[np.bool_]]) -> Measured:
    """Compare the predictions [n] at each step of drafting, true where they are right, of two heads."""
    old, new = (np.concatenate(each).astype(np.float64) for each in (before, after))
    rises = new - old
    return Measured(float(old.mean()), float(new.mean()), len(rises), float(rises.std() / np.sqrt(len(rises))))
