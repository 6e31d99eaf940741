"""Collects the data that a draft learns from: the target's replies, and its distributions for each. Each part can be
resumed.

Knows engines and samples; prompts and reports are the caller's. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from runtime.core.errors import StoppedError
from runtime.engine import Engine, Message, Prompt, Sampling
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.training.job import HEAD, MAX_HELD_OUT, OWN_KINDS, Job, layers_read, n_values
from runtime.training.samples import MAX_TEXT_TOKENS, Samples, Text, Texts, not_written
from runtime.training.teacher import Teacher

if TYPE_CHECKING:
    from runtime.training.trainer import TrainingProgress

MAX_TOKENS = 160  # of a reply, at most
WARMTH = 0.8  # the temperature of further replies to the same prompts; the first reply is at 0
REPLIES, SAMPLES, APART = "replies", "samples", "apart"


@dataclass(frozen=True, slots=True)
class Stage:
    """The progress of a training."""

    what: str
    done: int
    total: int
    told: TrainingProgress | None = None


Report = Callable[[Stage], None]
Cancel = Callable[[], bool]


def collect(job: Job, work: Path, engine: Engine, report: Report, is_cancelled: Cancel) -> None:
    """Generate replies of the target until there are enough tokens. Raises StoppedError, TrainingError."""
    texts = texts_in(job, work)
    try:
        for name in (REPLIES, SAMPLES, APART):
            (work / name).mkdir(0o700, exist_ok=True)
    except OSError as error:
        raise not_written(work, error) from error
    done, number, total = 0, 0, job.most_tokens
    while done < total:
        job.check(work)
        text = reply(engine, texts, f"{number:06}", job, number, is_cancelled)
        done, number = done + len(text.tokens), number + 1
        report(Stage("replies of the target", min(done, total), total))
    for i in range(min(len(job.apart), MAX_HELD_OUT)):
        reply(engine, texts, f"{APART}-{i:06}", job, -1 - i, is_cancelled)


def reply(engine: Engine, texts: Texts, name: str, job: Job, number: int, is_cancelled: Cancel) -> Text:
    """Return the target's reply to that prompt, generated or stored; held-out prompts have negative numbers."""
    if found := texts.read(name):
        return found
    turn, i = divmod(number, len(job.prompts)) if number >= 0 else (0, -1 - number)
    asked, ids = question(engine, (job.prompts if number >= 0 else job.apart)[i])
    sampling = Sampling(temperature=WARMTH if turn else 0.0, seed=job.seed + number if number >= 0 else job.seed)
    reply: list[int] = []
    for chunk in engine.reply(asked, sampling, MAX_TOKENS, cancel=is_cancelled):
        reply += chunk.tokens
    if is_cancelled():
        raise StoppedError
    text = Text(np.array([*ids, *reply], dtype=np.int32), len(ids))
    texts.write(name, text)
    return text


def question(engine: Engine, prompt: str) -> tuple[Prompt, list[int]]:
    """Return the prompt for the model and its tokens, shortened until the text has room for a reply."""
    while True:
        asked: Prompt = [Message("user", prompt)] if engine.facts.template else prompt
        ids = engine.encode(asked)
        if len(ids) <= MAX_TEXT_TOKENS // 2 or not prompt:
            return asked, ids
        prompt = prompt[: len(prompt) // 2]


def read_all(job: Job, work: Path, report: Report, is_cancelled: Cancel) -> None:
    """Compute the target's probabilities at each position of its replies. Raises StoppedError, TrainingError,
    ModelError.
    """
    texts, facts = texts_in(job, work), ModelFacts(read_model_header(job.target))
    names = texts.names()
    learned, apart = (samples_in(job, work, name) for name in (SAMPLES, APART))
    layers = layers_read(facts) if job.kind == HEAD else ()
    with Teacher(job.target, layers, job.threads, job.kind in OWN_KINDS) as teacher:
        for done, name in enumerate(names, 1):
            samples = apart if name.startswith(APART) else learned
            number, text = int(name.rpartition("-")[2]), texts.read(name)
            if text and text.is_readable and not samples.path(number).exists():
                samples.write(number, teacher.read(text))
            report(Stage("reading them", done, len(names)))
            if is_cancelled():
                raise StoppedError


def is_enough(job: Job, work: Path) -> bool:
    """Whether there is a reply to learn from, and one to measure on."""
    return all(samples_in(job, work, name).numbers() for name in (SAMPLES, APART))


def texts_in(job: Job, work: Path) -> Texts:
    """Return the store of the target's replies."""
    return Texts(work / REPLIES, ModelFacts(read_model_header(job.target)).n_vocab)


def samples_in(job: Job, work: Path, name: str) -> Samples:
    """Return the store of samples for training, or of held-out ones."""
    facts = ModelFacts(read_model_header(job.target))
    return Samples(work / name, facts.n_vocab, n_values(facts, job.kind))
