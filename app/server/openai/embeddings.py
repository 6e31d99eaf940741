"""/v1/embeddings: requests, the task that embeds texts, and the response."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.server.endpoint import Endpoint, require_tokens
from app.server.errors import ApiError, overflow
from app.server.fields import Many, RequestModel, Text, Whole, read_body, require_list
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import StepTask
from app.server.task_response import Formatter, TaskResponse
from app.server.wire import Event
from runtime.engine import Chunk, Engine
from runtime.engine.stats import Stats

TokenIds = Many[Annotated[Whole, Field(ge=0)]]
MAX_INPUTS = 2048  # as with OpenAI


def as_inputs(value: object) -> object:
    """Return a single text or a single list of ids as a list of one."""
    is_ids = isinstance(value, list) and bool(value) and all(isinstance(each, int) for each in value)
    return [value] if isinstance(value, str) or is_ids else require_list(value)


Inputs = Annotated[
    list[Text | TokenIds],
    Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True),
    BeforeValidator(as_inputs, json_schema_input_type=Text | TokenIds | list[Text | TokenIds]),
]


class EmbeddingsRequest(RequestModel):
    """The body of a request to /v1/embeddings."""

    model: str | None = None
    input: Inputs
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Whole, Field(ge=1)] | None = None

    def tokens(self, engine: Engine) -> list[list[int]]:
        """Return the token ids of each input. Raises ApiError if it cannot be embedded."""
        found = [
            engine.tokenize(each, special=False, bos=True) if isinstance(each, str) else list(each)
            for each in self.input
        ]
        if any(token >= engine.facts.n_vocab for ids in found for token in ids):
            raise ApiError(400, f"input: the model has {engine.facts.n_vocab} tokens. Use ids below that.", "input")
        if (longest := max(map(len, found))) > engine.facts.n_ctx:
            raise overflow(longest, engine.facts.n_ctx, "input")
        if not all(found):
            raise ApiError(400, "input has an empty text, which has no tokens. Leave it out.", "input")
        if self.dimensions not in (None, engine.facts.n_embd):
            message = f"dimensions: the model has {engine.facts.n_embd}, which cannot be changed. Leave it out."
            raise ApiError(400, message, "dimensions")
        return found


class EmbeddingTask(StepTask):
    """Texts to embed, and the vectors so far."""

    prompt_field = "input"

    def __init__(self, request: EmbeddingsRequest, engine: Engine) -> None:
        self.tokens = request.tokens(engine)
        self.n_prompt = sum(map(len, self.tokens))
        self.vectors: list[list[float]] = []

    def steps(self, engine: Engine, should_stop: Callable[[], bool]) -> Iterator[Chunk]:
        """Yield an empty chunk for each vector, so that other replies continue in between."""
        stats = Stats()
        for ids in self.tokens:
            if should_stop():
                break
            began = time.perf_counter()
            self.vectors.append(engine.embed(ids))
            stats.prompt_n, stats.embedded_n = stats.prompt_n + len(ids), stats.embedded_n + 1
            stats.prompt_seconds += time.perf_counter() - began
            yield Chunk("")
        yield Chunk("", finish_reason="cancelled" if should_stop() else "stop", stats=stats)


class Vector(BaseModel):
    """An embedding, as numbers or as base64 of 32-bit floats."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """The body that answers a request to /v1/embeddings."""

    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: EmbeddingsUsage


class VectorFormatter(Formatter):
    """Writes embeddings, which do not stream, with `written` once all are computed."""

    def __init__(self, written: Callable[[], Event]) -> None:
        self._written = written

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return all vectors."""
        return self._written()


def embeddings(task: EmbeddingTask, model: str, as_base64: bool) -> Event:
    """Return the body of EmbeddingsResponse."""
    n = task.n_prompt
    data = [
        {"object": "embedding", "index": i, "embedding": packed(vector) if as_base64 else vector}
        for i, vector in enumerate(task.vectors)
    ]
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": n, "total_tokens": n}}


def packed(vector: list[float]) -> str:
    """Return a vector as base64 of 32-bit floats, little-endian."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


async def embedded(
    served: ServedEngine, make_request: Callable[[], EmbeddingsRequest], written: Callable[[EmbeddingTask], Event]
) -> TaskResponse:
    """Return the response to a request, which is made in a thread; `written` makes its body of the finished task."""
    task = await run_in_threadpool(lambda: EmbeddingTask(make_request(), served.engine))
    scheduled = ScheduledTask(task)
    served.submit(scheduled)
    return TaskResponse(scheduled, VectorFormatter(lambda: written(task)), stream=False)


async def embed(served: ServedEngine, request: Request) -> TaskResponse:
    """Answer with the vectors of texts."""
    engine = served.engine
    require_tokens(engine)
    body = await read_body(request, EmbeddingsRequest, engine.facts.n_ctx)
    as_base64 = body.encoding_format == "base64"
    return await embedded(served, lambda: body, lambda task: embeddings(task, engine.pair.name, as_base64))


ENDPOINT = Endpoint("/embeddings", embed, EmbeddingsRequest, EmbeddingsResponse)
