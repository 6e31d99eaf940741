"""Collects the data that a draft learns from: the target's replies, and its distributions for each. Each part can be
resumed.

Knows samples; the caller asks the target, and shows the reports. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.core.errors import StoppedError
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.sampling.settings import Sampling
from runtime.training.extra import TrainingError
from runtime.training.job import HEAD, MAX_HELD_OUT, OWN_KINDS, Job, layers_read, n_values
from runtime.training.samples import Sample, Samples, not_written
from runtime.training.teacher import teacher_of

MAX_TOKENS = 160  # of a reply to learn from, at most
WARMTH = 0.8  # the temperature of further replies to the same prompts; the first reply is at 0
REPLIES, SAMPLES, APART = "replies", "samples", "apart"


@dataclass(frozen=True, slots=True)
class Stage:
    """The progress of a training; `loss`, the shares of right predictions and `seconds_left` are of training alone."""

    what: str
    done: int
    total: int
    loss: float = 0.0
    right: tuple[float, ...] = ()  # recent ones, by step of drafting
    seconds_left: float = 0.0


Report = Callable[[Stage], None]
Cancel = Callable[[], bool]
Ask = Callable[[str, Sampling], Sample]  # a prompt; returns the text with the target's reply


def collect(job: Job, work: Path, ask: Ask, report: Report, is_cancelled: Cancel) -> None:
    """Generate replies of the target until there are enough tokens. Raises StoppedError, TrainingError."""
    try:
        for name in (REPLIES, SAMPLES, APART):
            (work / name).mkdir(0o700, exist_ok=True)
    except OSError as error:
        raise not_written(work, error) from error
    replies = samples_in(job, work, REPLIES)
    done, number, total = 0, 0, job.most_tokens
    while done < total:
        job.check(work)
        turn, i = divmod(number, len(job.prompts))
        sampling = Sampling(temperature=WARMTH if turn else 0.0, seed=job.seed + number)
        text = reply(replies, f"{number:06}", partial(ask, job.prompts[i], sampling), is_cancelled)
        done, number = done + len(text.tokens), number + 1
        report(Stage("replies of the target", min(done, total), total))
    for i, prompt in enumerate(job.apart[:MAX_HELD_OUT]):
        how = Sampling(temperature=0.0, seed=job.seed)
        reply(replies, f"{APART}-{i:06}", partial(ask, prompt, how), is_cancelled)


def reply(replies: Samples, name: str, ask: Callable[[], Sample], is_cancelled: Cancel) -> Sample:
    """Return the stored text of that name, or one that is generated now. Raises StoppedError, TrainingError."""
    with suppress(TrainingError):
        return replies.read(name)
    text = ask()
    if is_cancelled():
        raise StoppedError
    replies.write(name, text)
    return text


def read_all(job: Job, work: Path, report: Report, is_cancelled: Cancel) -> None:
    """Compute the target's probabilities at each position of its replies. Raises StoppedError, TrainingError,
    ModelError.
    """
    replies, facts = samples_in(job, work, REPLIES), ModelFacts(read_model_header(job.target))
    names = replies.names()
    layers = layers_read(facts) if job.kind == HEAD else ()
    with teacher_of(job.target, layers, job.threads, job.kind in OWN_KINDS) as teacher:
        for done, name in enumerate(names, 1):
            samples = samples_in(job, work, APART if name.startswith(APART) else SAMPLES)
            if not samples.path(name).exists() and (text := replies.read(name)).is_readable:
                samples.write(name, teacher.read(text))
            report(Stage("reading them", done, len(names)))
            if is_cancelled():
                raise StoppedError


def is_enough(job: Job, work: Path) -> bool:
    """Whether there is a reply to learn from, and one to measure on."""
    return all(samples_in(job, work, name).names() for name in (SAMPLES, APART))


def samples_in(job: Job, work: Path, name: str) -> Samples:
    """Return the store of the target's replies, of samples for training, or of held-out ones."""
    facts = ModelFacts(read_model_header(job.target))
    return Samples(work / name, facts.n_vocab, n_values(facts, job.kind))
