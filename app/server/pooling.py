"""Work for embedding and reranking models: token ids in passes, and the vectors or scores that come of them.

Knows the engine and no interface.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.choosing import Farewell
from app.server.described import Need, purpose
from app.server.endpoint import Endpoint, model_endpoint, read_for, require_tokens
from app.server.errors import ApiError, as_api_error, overflow
from app.server.fields import RequestModel
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import StepTask
from app.server.task_response import Formatter, TaskResponse
from app.server.wire import Event, JSONBody
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Engine
from runtime.engine.pooling import ONE_BY_ONE, ReadText
from runtime.engine.stats import Stats

MAX_INPUTS = 2**16  # texts of a request
POLL = 0.05  # seconds after which it is asked again whether images are encoded
SHORT = 2**11  # characters of a text that costs little more than the calls about it
Vectors = NDArray[np.float32]  # [n, width]
WAITING: WeakKeyDictionary[Engine, WeakSet[PoolingTask]] = WeakKeyDictionary()  # tasks that have not ended


class PoolingTask(StepTask):
    """Texts as token ids, and their vectors or scores so far. Tasks that wait share the passes of the one whose turn it
    is, as far as there is room. Raises ApiError for texts that the model cannot read.
    """

    asked_at = 0.0  # when its request came, by the clock of measurements

    def __init__(self, engine: Engine, prompt_field: str, make_tokens: Callable[[], list[list[int]]]) -> None:
        self.prompt_field = prompt_field
        try:
            self.tokens = make_tokens()
        except SlipstreamError as error:
            raise as_api_error(error, prompt_field) from error
        self._found: dict[int, Vectors] = {}
        self.prepare(engine)
        WAITING.setdefault(engine, WeakSet()).add(self)

    def prepare(self, engine: Engine) -> None:
        """Sort the texts. Raises ApiError for one that the model cannot read."""
        check(self.tokens, engine, self.prompt_field)
        self.n_prompt = sum(map(len, self.tokens))
        self.has_images = any(min(ids) < 0 for ids in self.tokens)
        self.left = deque(sorted(range(len(self.tokens)), key=lambda i: len(self.tokens[i])))  # short ones first

    def steps(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield an empty chunk between two passes, so that other work is done there."""
        stats = Stats()
        while self.left and not should_stop():
            began = time.perf_counter()
            shared = self._next_pass(engine)
            if not all(engine.is_ready(task.tokens[i]) for task, i in shared if task.has_images):
                time.sleep(POLL)
                yield Chunk("")
                continue
            rows = engine.embed([task.tokens[i] for task, i in shared])
            for (task, _), row in zip(shared, rows, strict=True):
                task.take(row)
            stats.prompt_seconds += time.perf_counter() - began
            if self.left:
                yield Chunk("")
        WAITING[engine].discard(self)
        stats.prompt_n, stats.embedded_n = sum(len(self.tokens[i]) for i in self._found), len(self._found)
        yield Chunk("", finish_reason="cancelled" if self.left else "stop", stats=stats)

    def _next_pass(self, engine: Engine) -> list[tuple[PoolingTask, int]]:
        """Return the next texts of this task, and those of others that fit into the same pass."""
        pooling = engine.facts.pooling or ONE_BY_ONE
        others = [each for each in list(WAITING.get(engine, ())) if each is not self]
        theirs = sorted(
            ((task, i) for task in others for i in islice(task.left, pooling.n_texts)),
            key=lambda each: len(each[0].tokens[each[1]]),
        )
        waiting = [*((self, i) for i in islice(self.left, pooling.n_texts)), *theirs]
        return waiting[: pooling.n_fitting(len(task.tokens[i]) for task, i in waiting)]

    def take(self, row: Vectors) -> None:
        """Store the vector or the score of the next text that is left."""
        self._found[self.left.popleft()] = row

    @property
    def rows(self) -> Vectors:
        """The vectors or scores of all texts, in the order in which they were given."""
        return np.stack([self._found[i] for i in range(len(self.tokens))])

    def vectors(self, n: int | None = None) -> Vectors:
        """Return the vectors, or only their first `n` numbers, at length 1 again."""
        found = self.rows
        if n is None or n == found.shape[1]:
            return found
        lengths = np.linalg.norm(found[:, :n], axis=1, keepdims=True)
        return np.asarray(found[:, :n] / np.maximum(lengths, 1e-12), np.float32)

    @property
    def scores(self) -> list[float]:
        """The score of each text, from a reranking model."""
        scores: list[float] = self.rows[:, 0].tolist()
        return scores


class ShortTask(PoolingTask):
    """A short text that is read in one call, made for a request while there is no other."""

    def __init__(self, prompt_field: str, text: str) -> None:
        self.prompt_field, self.text = prompt_field, text
        self.tokens, self._found = [], {}

    async def at_once(self, engine: Engine) -> Chunk | None:
        """See StepTask."""
        loop, began = asyncio.get_running_loop(), time.perf_counter()
        answer: asyncio.Future[ReadText | Exception | None] = loop.create_future()

        def sink(came: ReadText | Exception | None) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(put, answer, came)

        if not engine.read_text(self.text, sink) or (came := await answer) is None:
            return None
        if isinstance(came, Exception):
            raise came
        self.tokens = [came.tokens]
        self.prepare(engine)
        assert came.vector is not None
        self.take(came.vector)
        stats = Stats(prompt_seconds=time.perf_counter() - began, prompt_n=self.n_prompt, embedded_n=1)
        return Chunk("", finish_reason="stop", stats=stats)

    def steps(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
        """See StepTask."""
        super().__init__(engine, self.prompt_field, lambda: engine.texts_to_ids([self.text]))
        yield from super().steps(engine, should_stop)


def put(answer: asyncio.Future[Any], came: object) -> None:
    """Set a future's result, unless nobody waits for it any more."""
    if not answer.done():
        answer.set_result(came)


def check(tokens: Sequence[Sequence[int]], engine: Engine, field: str) -> None:
    """Raises ApiError for unknown token ids, and for a text without tokens or with too many."""
    facts = engine.facts
    if any(token >= facts.n_vocab for ids in tokens for token in ids):
        raise ApiError(400, f"{field}: the model has {facts.n_vocab} tokens. Use ids below that.", field)
    if (longest := max(map(len, tokens))) > facts.n_ctx:
        raise overflow(longest, facts.n_ctx, field)
    if not all(tokens):
        raise ApiError(400, f"{field} has an empty text, which has no tokens. Leave it out.", field)


def require(need: Need, engine: Engine) -> None:
    """Raises ApiError if the model makes no vectors, or scores no documents."""
    if (ranks := purpose(engine) == "reranking") == (need == "reranking"):
        return
    message = "Reranking is not supported by the served model. Serve a reranking model, or compare embeddings."
    if ranks:
        message = "A reranking model makes no vectors. Send texts to /v1/rerank, or serve an embedding model."
    raise ApiError(501, message, code="not_supported")


def check_dimensions(n: int | None, engine: Engine) -> None:
    """Raises ApiError for a length to which the model's vectors cannot be cut."""
    width, pooling = engine.facts.n_embd, engine.facts.pooling
    if n is None or n == width or (n < width and pooling and pooling.is_nested):
        return
    known = f"from 1 to {width}" if pooling and pooling.is_nested else f"{width}, which cannot be changed"
    raise ApiError(400, f"dimensions: the model has {known}. Leave it out.", "dimensions")


class PooledFormatter(Formatter):
    """Writes vectors and scores, which do not stream, with `written` once all are computed."""

    def __init__(self, written: Callable[[], Event | list[Event]], is_quick: bool) -> None:
        self._written, self.is_quick = written, is_quick

    def body(self, chunks: Sequence[Chunk]) -> Event | list[Event]:
        """Return all of them."""
        return self._written()


class PoolingRequest(RequestModel, ABC):
    """The body of a request for vectors or scores."""

    @abstractmethod
    def task(self, engine: Engine) -> PoolingTask:
        """Return what the engine has to do, which may be slow to find. Raises ApiError."""

    def short(self) -> ShortTask | None:
        """Return the task of a single short text, which is faster while there is no other request; None for others."""
        return None

    def answer_to_nothing(self, engine: Engine) -> Event | None:
        """Return the answer where there is no text, so that the model is only to be loaded; None if there is one."""
        return None


AnyPooling = TypeVar("AnyPooling", bound=PoolingRequest)


def pooling_endpoint(
    path: str,
    kind: type[AnyPooling],
    response: type[BaseModel],
    written: Callable[[AnyPooling, PoolingTask, Engine], Event | list[Event]],
    need: Need = "embedding",
    farewell: Farewell | None = None,
) -> Endpoint:
    """Return an endpoint for vectors or scores; `written` makes its body of the finished task."""

    async def handle(served: ServedEngine, request: Request) -> ASGIApp:
        engine, asked_at = served.engine, time.perf_counter()
        require_tokens(engine)
        require(need, engine)
        body = await read_for(engine, request, kind)
        check_dimensions(getattr(body, "dimensions", None), engine)
        if (nothing := body.answer_to_nothing(engine)) is not None:
            return JSONBody(nothing)
        short = body.short() if served.is_free else None
        task: PoolingTask = short if short else await run_in_threadpool(body.task, engine)
        scheduled, task.asked_at = ScheduledTask(task), asked_at
        served.submit(scheduled)
        formatter = PooledFormatter(lambda: written(body, task, engine), len(task.tokens) <= 1)
        return TaskResponse(scheduled, formatter, stream=False)

    return model_endpoint(path, handle, kind, response, need=need, farewell=farewell)
