"""A training from the first reply to the draft's file: each part goes on where it was ended.

Knows engines, samples and learners; what is asked and what is shown is the caller's. Whether the draft is kept is
measured by pairing.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from runtime.core.errors import StoppedError
from runtime.drafters.reply_store import make_private_folder
from runtime.engine import Engine, Message, Sampling
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.trimmed import choose
from runtime.tools.made_drafts import TRAINED, folder
from runtime.training.draft_file import begin_draft, write_draft
from runtime.training.head_file import HeadFile, write_head
from runtime.training.head_model import Head
from runtime.training.job import HEAD, HEAD_DIM, N_LAYERS, Job, draft_width, layers_read, n_words
from runtime.training.layers import LayerShape
from runtime.training.learners import DraftLearner, HeadLearner
from runtime.training.refining import is_readable
from runtime.training.samples import Sample, Samples, Text, no_room
from runtime.training.target_words import TargetWords
from runtime.training.teacher import Teacher
from runtime.training.trainer import Schedule, Told, Trainer

MAX_TOKENS = 160  # of a reply
WARMTH = 0.8  # the temperature of replies to prompts that were answered before; the first reply is at 0
MOST_APART = 24  # prompts that are held out, at most
REPLIES, SAMPLES, APART, CHECKPOINT = "replies", "samples", "apart", "checkpoint"


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a training is."""

    what: str
    done: int
    total: int
    told: Told | None = None


Report = Callable[[Stage], None]
Cancel = Callable[[], bool]


def collect(job: Job, engine: Engine, report: Report, is_cancelled: Cancel) -> None:
    """Has the target answer until there are enough tokens. Raises StoppedError when cancelled, TrainingError."""
    place = job.folder
    for name in (REPLIES, SAMPLES, APART):
        make_private_folder(place / name)
    done, number, total = 0, 0, job.most_tokens
    while done < total:
        job.check(place)
        text = reply(engine, place / REPLIES / f"{number:06}.npy", job, number, is_cancelled)
        done, number = done + len(text.tokens), number + 1
        report(Stage("replies of the target", min(done, total), total))
    for i in range(min(len(job.apart), MOST_APART)):
        reply(engine, place / REPLIES / f"apart-{i:06}.npy", job, -1 - i, is_cancelled)


def reply(engine: Engine, path: Path, job: Job, number: int, is_cancelled: Cancel) -> Text:
    """The target's reply to that prompt, made or found; those held out have negative numbers."""
    if path.exists():
        found = np.load(path)
        return Text(found[1:], int(found[0]))
    turn, i = divmod(number, len(job.prompts)) if number >= 0 else (0, -1 - number)
    prompt = (job.prompts if number >= 0 else job.apart)[i]
    asked = [Message("user", prompt)] if engine.facts.template else prompt
    ids = engine.encode(asked)
    sampling = Sampling(temperature=WARMTH if turn else 0.0, seed=job.seed + number if number >= 0 else job.seed)
    said: list[int] = []
    for chunk in engine.reply(asked, sampling, MAX_TOKENS, cancel=is_cancelled):
        said += chunk.tokens
    if is_cancelled():
        raise StoppedError
    text = Text(np.array([*ids, *said], dtype=np.int32), len(ids))
    new = path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            np.save(file, np.concatenate([[np.int32(text.start)], text.tokens]).astype(np.int32))
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise no_room(path.parent, error) from error
    return text


def read_all(job: Job, report: Report, is_cancelled: Cancel) -> None:
    """Has the target say its chances at each place of its replies. Raises StoppedError, TrainingError, ModelError."""
    place, facts = job.folder, ModelFacts(read_model_header(job.target))
    files = sorted((place / REPLIES).glob("*.npy"))
    with Teacher(job.target, layers_read(facts) if job.kind == HEAD else (), job.threads) as teacher:
        for done, path in enumerate(files, 1):
            samples = Samples(place / (APART if path.stem.startswith(APART) else SAMPLES))
            number = int(path.stem.rpartition("-")[2])
            found = np.load(path)
            text = Text(found[1:], int(found[0]))
            if is_readable(text) and not samples.path(number).exists():
                samples.write(number, teacher.read(text))
            report(Stage("reading them", done, len(files)))
            if is_cancelled():
                raise StoppedError


def trainer_of(job: Job) -> tuple[Trainer, Callable[[Path], None]]:
    """What trains the draft, and what writes it to a file."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    facts, words, samples = ModelFacts(read_model_header(job.target)), TargetWords(job.target), learned(job)
    counts = np.bincount(np.concatenate([said(each) for each in all_of(samples)]), minlength=facts.n_vocab)
    kept = choose(facts, counts, n_words(facts)).astype(np.int64)
    name, n_context = f"{job.kind} for {facts.name or job.target.stem}", facts.n_context
    device, schedule = torch.device(job.device), Schedule(job.epochs)
    if job.kind == HEAD:
        output = words.output(kept) if len(kept) < facts.n_vocab else None
        file = HeadFile(
            Head(shape(facts.own("embedding_length"))), layers_read(facts), facts.n_vocab, n_context, name, output
        )
        head = HeadLearner(file, words, device)
        return Trainer(head, samples, samples.numbers(), schedule, job.seed), lambda path: write_head(path, file)
    model = begin_draft(shape(draft_width(facts)), N_LAYERS, words, kept)
    learner = DraftLearner(model, kept, device)
    write = lambda path: write_draft(path, model, job.target, n_context, name)  # noqa: E731
    return Trainer(learner, samples, samples.numbers(), schedule, job.seed), write


def shape(width: int) -> LayerShape:
    """A draft's layer of that width."""
    heads = width // HEAD_DIM
    return LayerShape(
        width, heads, next(n for n in (heads // 3, heads // 4, heads // 2, heads) if n and heads % n == 0), 2 * width
    )


def learned(job: Job) -> Samples:
    """What is trained on."""
    return Samples(job.folder / SAMPLES)


def all_of(samples: Samples) -> Iterator[Sample]:
    """All that there are."""
    return (samples.read(number) for number in samples.numbers())


def said(sample: Sample) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The tokens of its reply."""
    return sample.tokens[sample.start :]


def train(job: Job, report: Report, is_cancelled: Cancel) -> tuple[Path, tuple[float, ...], tuple[float, ...]]:
    """Trains on what was collected and read, and writes the draft.

    Returns its file, and the shares of right guesses on held-out texts before and after. Raises StoppedError when
    cancelled, with a checkpoint behind; TrainingError; ModelError where the target was changed.
    """
    place = job.folder
    trainer, write = trainer_of(job)
    apart = Samples(place / APART)
    judge = Trainer(trainer.learner, apart, apart.numbers(), Schedule(), job.seed)
    before = judge.held_out(apart.numbers())
    for told in trainer.run(is_cancelled, place / CHECKPOINT):
        report(Stage("training", told.step, told.n_steps, told))
    if not trainer.is_done:
        raise StoppedError
    job.check(place)
    path = folder(job.target) / f"{job.target.stem}-{job.kind}{TRAINED}"
    try:
        make_private_folder(path.parent)
        write(path)
    except OSError as error:
        raise no_room(path.parent, error) from error
    return path, before, judge.held_out(apart.numbers())


def clean_up(job: Job) -> None:
    """Removes what a training that is done needs no longer."""
    shutil.rmtree(job.folder, ignore_errors=True)
