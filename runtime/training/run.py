"""Runs a training from the collected samples to the draft's file; it can be resumed.

Knows samples and learners. pairing.py measures whether the draft is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray
from torch import Tensor

from runtime.core.errors import StoppedError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.trimmed import choose
from runtime.training.collecting import APART, SAMPLES, Cancel, Report, Stage, samples_in
from runtime.training.draft_model import DraftModel
from runtime.training.extra import TrainingError
from runtime.training.head_file import NAMES, HeadFile, add_shape, add_weight, write_head
from runtime.training.head_model import Head
from runtime.training.job import HEAD, HEAD_DIM, MODEL, N_LAYERS, Job, draft_width, layers_read, n_words
from runtime.training.layers import LayerShape
from runtime.training.learners import DraftLearner, HeadLearner, Learner
from runtime.training.own_head_file import OwnHeadFile, finish, write_own_head
from runtime.training.samples import not_written
from runtime.training.state_learner import StateHeadLearner, begin_heads
from runtime.training.target_words import TargetWords
from runtime.training.trainer import Schedule, Trainer

ROWS_PER_READ = 4096  # rows of a table read in one piece
CHECKPOINT, DRAFT = "checkpoint", "draft.gguf"
Write = Callable[[Path], None]  # of the draft's file


def require_device(name: str) -> None:
    """Raise TrainingError if there is no such device."""
    is_there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not is_there.get(name):
        raise TrainingError(f"PyTorch finds no device {name!r} here. Leave out `--device` to train on the processor.")


def trainer_of(job: Job, work: Path) -> tuple[Trainer, Write]:
    """Return the trainer of the draft, and the function that writes the draft to a file."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    facts, samples = ModelFacts(read_model_header(job.target)), samples_in(job, work, SAMPLES)
    counts = np.zeros(facts.n_vocab, dtype=np.int64)
    for number in samples.numbers():
        sample = samples.read(number)
        counts += np.bincount(sample.tokens[sample.start :], minlength=facts.n_vocab)
    kept = choose(facts, counts, n_words(facts)).astype(np.int64)
    begin = {HEAD: begin_head, MODEL: begin_model}.get(job.kind, begin_own_heads)
    learner, write = begin(job, facts, TargetWords(job.target), kept)
    return Trainer(learner, samples, samples.numbers(), Schedule(job.epochs), job.seed), write


def begin_head(job: Job, facts: ModelFacts, words: TargetWords, kept: NDArray[np.int64]) -> tuple[Learner, Write]:
    """Return the learner of an EAGLE-3 head, and the function that writes it."""
    output = words.output(kept) if len(kept) < facts.n_vocab else None
    head = Head(shape(facts.own("embedding_length")))
    file = HeadFile(head, layers_read(facts), facts.n_vocab, facts.n_context, named(job, facts), output)
    return HeadLearner(file, words, torch.device(job.device)), lambda path: write_head(path, file)


def begin_own_heads(job: Job, facts: ModelFacts, words: TargetWords, kept: NDArray[np.int64]) -> tuple[Learner, Write]:
    """Return the learner of Medusa or Hydra heads, and the function that writes them."""
    heads = begin_heads(job.kind, words, kept)
    table = kept if len(kept) < facts.n_vocab else None

    def write(path: Path) -> None:
        name = facts.name or job.target.stem
        write_own_head(path, OwnHeadFile(job.kind, heads.shape, facts.n_vocab, name, heads.weights(), table))

    return StateHeadLearner(heads, words, kept, torch.device(job.device)), write


def begin_model(job: Job, facts: ModelFacts, words: TargetWords, kept: NDArray[np.int64]) -> tuple[Learner, Write]:
    """Return the learner of a small draft model, and the function that writes it."""
    model = begin_draft(shape(draft_width(facts)), N_LAYERS, words, kept)
    learner = DraftLearner(model, kept, torch.device(job.device))
    return learner, lambda path: write_draft(path, model, job.target, facts.n_context, named(job, facts))


def named(job: Job, facts: ModelFacts) -> str:
    """Return the name of a draft for its file."""
    return f"{job.kind} for {facts.name or job.target.stem}"


def shape(width: int) -> LayerShape:
    """Return the shape of a draft's layer of that width."""
    heads = width // HEAD_DIM
    return LayerShape(
        width, heads, next(n for n in (heads // 3, heads // 4, heads // 2, heads) if n and heads % n == 0), 2 * width
    )


def train(
    job: Job, work: Path, report: Report, is_cancelled: Cancel
) -> tuple[Path, tuple[float, ...], tuple[float, ...]]:
    """Train on the collected samples, and write the draft to a file in `work`.

    Returns its path, and the shares of correct predictions on held-out texts before and after. Raises StoppedError when
    cancelled, after a checkpoint; TrainingError; ModelError if the target was changed.
    """
    try:
        return trained(job, work, report, is_cancelled)
    except RuntimeError as error:  # from PyTorch, also when memory runs out
        raise TrainingError(
            f"PyTorch failed ({str(error).strip().splitlines()[0]}). Close other programs and run the same "
            "command again: it resumes where it stopped."
        ) from error


def trained(
    job: Job, work: Path, report: Report, is_cancelled: Cancel
) -> tuple[Path, tuple[float, ...], tuple[float, ...]]:
    """Train as `train` does, with PyTorch's errors left to the caller."""
    trainer, write = trainer_of(job, work)
    apart = samples_in(job, work, APART)
    judge = Trainer(trainer.learner, apart, apart.numbers(), Schedule(), job.seed)
    before = judge.held_out(apart.numbers())
    for told in trainer.run(is_cancelled, work / CHECKPOINT):
        report(Stage("training", told.step, told.n_steps, told))
    if not trainer.is_done:
        raise StoppedError
    job.check(work)
    path = work / DRAFT
    try:
        write(path)
    except OSError as error:
        raise not_written(work, error) from error
    return path, before, judge.held_out(apart.numbers())


def begin_draft(shape: LayerShape, n_layers: int, words: TargetWords, kept: NDArray[np.int64]) -> DraftModel:
    """Return an untrained model whose embedding is derived from the target's."""
    return DraftModel(shape, n_layers, principal(words, shape.width), torch.from_numpy(kept))


def principal(words: TargetWords, width: int) -> Tensor:
    """Return the target's table on its first `width` principal axes [n_vocab, width], at an embedding's usual scale."""
    covariance = sum(piece.T.astype(np.float64) @ piece for piece in words.pieces(ROWS_PER_READ))
    _, axes = np.linalg.eigh(covariance)
    axes = axes[:, ::-1][:, :width].astype(np.float32)
    table = np.concatenate([piece @ axes for piece in words.pieces(ROWS_PER_READ)])
    return torch.from_numpy(table * (width**-0.5 / table.std()))


def write_draft(path: Path, model: DraftModel, target: Path, n_context: int, name: str) -> None:
    """Write the model; `path` appears only when complete. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    writer = GGUFWriter(str(new), "llama")
    add_shape(writer, model.shape, n_context, name)
    writer.add_block_count(len(model.layers))
    for key, field in GGUFReader(target).fields.items():
        if key.startswith("tokenizer."):
            is_list = field.types[0] == GGUFValueType.ARRAY
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if is_list else None)
    add_weight(writer, "token_embd.weight", model.whole_table())
    for parameter, weight in model.state_dict().items():
        first, *rest = parameter.split(".")
        if first == "layers":
            add_weight(writer, f"blk.{rest[0]}.{NAMES.get(rest[1], rest[1])}.weight", weight)
    add_weight(writer, "output_norm.weight", model.norm.weight)
    finish(writer, new, path)
