"""Collects the data that a draft learns from: the target's replies, and its distributions for each. Each part can be
resumed. A Teacher runs the quantized target on its texts: its probabilities at each position, and the states that a
head reads, which do not depend on earlier texts.

Knows samples and backends; the caller asks the target, and shows the reports. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from runtime.backends.contexts import open_backend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.shown_states import Rows
from runtime.core.draft import Draft, Logits, Tokens
from runtime.core.errors import StoppedError
from runtime.loading import layout
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import STATES
from runtime.sampling.settings import Sampling
from runtime.training.conditions import TrainingError
from runtime.training.job import HEAD, MAX_HELD_OUT, OWN_KINDS, Job, layers_read, n_values
from runtime.training.samples import MAX_TEXT_TOKENS, N_LIKELY, Halves, Ids, Sample, Samples, not_written

MAX_TOKENS = 160  # of a reply to learn from, at most
WARMTH = 0.8  # the temperature of further replies to the same prompts; the first reply is at 0
REPLIES, SAMPLES, APART = "replies", "samples", "apart"
ROWS = 32  # rows of logits per pass: they take megabytes with a large vocabulary


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


@contextmanager
def teacher_of(
    target: Path, layers: tuple[int, ...], threads: int = 1, shows_outputs: bool = False
) -> Iterator[Teacher]:
    """Open a target that exposes the inputs of `layers`, () for none, or instead what its output matrix reads. Raises
    ModelError.
    """
    n_ctx = MAX_TEXT_TOKENS + ROWS
    with (
        closing(LlamaModel(target, exact=layout.prefers_exact(target))) as model,
        closing(open_backend(model, n_ctx, ROWS, STATES, is_frugal=model.is_recurrent)) as backend,
    ):
        backend.set_threads(threads, threads)
        yield Teacher(backend, n_ctx, layers, model.n_embd, shows_outputs)


class Teacher:
    """An open target."""

    def __init__(
        self, backend: LlamaBackend, n_ctx: int, layers: tuple[int, ...], width: int, shows_outputs: bool
    ) -> None:
        self.backend, self.shows_outputs = backend, shows_outputs
        self._states = np.zeros((n_ctx, (1 if shows_outputs else len(layers)) * width), dtype=np.float16)
        if shows_outputs:
            backend.shown.show_outputs(self._store_states)
        elif layers:
            backend.shown.show(layers, self._store_states)

    def _store_states(self, tokens: Tokens, start: int, states: Rows) -> None:
        self._states[start : len(tokens)] = states

    def read(self, text: Sample) -> Sample:
        """Return the sample of the first MAX_TEXT_TOKENS tokens of a text whose reply begins before that."""
        tokens = np.array(text.tokens[:MAX_TEXT_TOKENS], dtype=np.int32)
        # Clears the cache, so that nothing read before is reused for a text that begins with that token
        self.backend.forward(np.array([1 if tokens[0] == 0 else 0], dtype=np.int32))
        pieces = []
        if self.shows_outputs:  # known only in passes that read no prompt
            self._states[: text.start] = 0
            self.backend.forward(tokens[: text.start - 1])
        for at in range(text.start, len(tokens), ROWS):
            draft = Draft(tuple(tokens[at : min(at + ROWS, len(tokens)) - 1].tolist()))
            pieces.append(likely(self.backend.forward(tokens[:at], draft)))
        ids, chances = (np.concatenate(each) for each in zip(*pieces, strict=True))
        self._states[len(tokens) - 1] = 0  # no head reads this token's state
        states = self._states[: len(tokens)].copy() if self._states.size else None
        return Sample(tokens, text.start, ids, chances, states)


def likely(logits: Logits) -> tuple[Ids, Halves]:
    """Return the most likely tokens and their log probabilities [n, N_LIKELY], for rows [n, n_vocab]."""
    n = min(N_LIKELY, logits.shape[1])
    found = np.argpartition(-logits, n - 1, axis=1)[:, :n]
    values = np.take_along_axis(logits, found, axis=1)
    order = np.lexsort((found, -values))
    found, values = np.take_along_axis(found, order, axis=1), np.take_along_axis(values, order, axis=1)
    most = values[:, :1].astype(np.float64)
    total = np.exp(logits - most).sum(axis=1, keepdims=True)
    return found.astype(np.int32), (values - most - np.log(total)).astype(np.float16)
