"""/api/embed and the older /api/embeddings of Ollama: texts as vectors."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import model_endpoint, require_tokens
from app.server.fields import RequestModel, Text, Whole, as_list, read_body
from app.server.ollama.reply import NANO
from app.server.pooling import MAX_INPUTS, PoolingTask, check_dimensions, pooled, require_vectors
from app.server.served import ServedEngine
from app.server.wire import Event, JSONBody
from runtime.engine import Engine

Texts = Annotated[
    list[Text],
    Field(max_length=MAX_INPUTS, fail_fast=True),
    BeforeValidator(as_list, json_schema_input_type=Text | list[Text]),
]


class EmbedRequest(RequestModel):
    """The body of a request to /api/embed."""

    model: str = ""
    input: Texts | None = None
    truncate: bool | None = None  # to the context; absent: yes
    dimensions: Annotated[Whole, Field(ge=1)] | None = None


class EmbedResponse(BaseModel):
    """The body that answers a request to /api/embed."""

    model: str
    embeddings: list[list[float]]
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0


class OldEmbedRequest(RequestModel):
    """The body of a request to /api/embeddings."""

    model: str = ""
    prompt: Text | None = None


class OldEmbedResponse(BaseModel):
    """The body that answers a request to /api/embeddings."""

    embedding: list[float]


def task_for(engine: Engine, texts: list[str], cuts: bool = True, field: str = "input") -> PoolingTask:
    """Return what the engine has to do; a text is cut to the size of the context. Raises ApiError."""
    return PoolingTask(engine, field, lambda: engine.texts_to_ids(texts, cuts))


def without_vectors(name: str) -> Event:
    """Return the answer to a request without a text."""
    return {"model": name, "embeddings": []}


async def embed(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the vectors of texts. Without a text, the model is only to be loaded."""
    engine, began = served.engine, time.perf_counter()
    require_tokens(engine)
    require_vectors(engine)
    body = await read_body(request, EmbedRequest, engine.facts.n_ctx)
    check_dimensions(body.dimensions, engine)
    found = without_vectors(body.model or engine.pair.name)
    if not (given := body.input):
        return JSONBody(found)

    def written(task: PoolingTask) -> Event:
        seconds = time.perf_counter() - began
        numbers = {"total_duration": int(NANO * seconds), "load_duration": 0, "prompt_eval_count": task.n_prompt}
        return found | {"embeddings": task.vectors(body.dimensions).tolist()} | numbers

    return await pooled(served, partial(task_for, engine, given, body.truncate is not False), written)


async def embed_one(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the vector of a text, as `embed` does."""
    engine = served.engine
    require_tokens(engine)
    require_vectors(engine)
    body = await read_body(request, OldEmbedRequest, engine.facts.n_ctx)
    if not (text := body.prompt):
        return JSONBody({"embedding": []})
    make_task = partial(task_for, engine, [text], field="prompt")
    return await pooled(served, make_task, lambda task: {"embedding": task.vectors()[0].tolist()})


ENDPOINTS = (
    model_endpoint("/api/embed", embed, EmbedRequest, EmbedResponse, need="embedding", farewell=without_vectors),
    model_endpoint("/api/embeddings", embed_one, OldEmbedRequest, OldEmbedResponse, need="embedding"),
)
