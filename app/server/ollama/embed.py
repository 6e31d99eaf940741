"""/api/embed and the older /api/embeddings of Ollama: texts as vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.bounds import Text
from app.server.endpoint import Endpoint, require_tokens
from app.server.fields import RequestModel, Whole, as_list, read_body
from app.server.ollama.reply import NANO
from app.server.openai.embeddings import MAX_INPUTS, EmbeddingsRequest, EmbeddingTask, VectorFormatter
from app.server.refusal import OllamaErrorBody
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task_response import TaskResponse
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

    @property
    def is_empty(self) -> bool:
        """Whether there is no text, so that the model is only to be loaded."""
        return not self.input

    def asked(self, engine: Engine) -> EmbeddingsRequest:
        """Return the request as an OpenAI embeddings request."""
        given = self.input or ()
        texts: list[str | list[int]] = [each if self.truncate is False else cut(each, engine) for each in given]
        return EmbeddingsRequest(input=texts, dimensions=self.dimensions)


class OldEmbedRequest(RequestModel):
    """The body of a request to /api/embeddings."""

    model: str = ""
    prompt: Text | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no text, so that the model is only to be loaded."""
        return not self.prompt

    def asked(self, engine: Engine) -> EmbeddingsRequest:
        """Return the request as an OpenAI embeddings request."""
        return EmbeddingsRequest(input=[cut(self.prompt or "", engine)])


class EmbedResponse(BaseModel):
    """The body that answers a request to /api/embed."""

    model: str
    embeddings: list[list[float]]
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0


class OldEmbedResponse(BaseModel):
    """The body that answers a request to /api/embeddings."""

    embedding: list[float]


def cut(text: str, engine: Engine) -> list[int]:
    """Return a text's first tokens, up to the size of the context."""
    return engine.tokenize(text, special=False, bos=True)[: engine.facts.n_ctx]


def embed_endpoint(
    path: str,
    kind: type[EmbedRequest] | type[OldEmbedRequest],
    response: type[BaseModel],
    written: Callable[[EmbeddingTask, str, float], Event],
    empty: Callable[[str], Event],
) -> Endpoint:
    """Return an endpoint that embeds texts. `written` turns the finished task, the model's name and the start time into
    the body; `empty` is the body without a text.
    """

    async def embed(served: ServedEngine, request: Request) -> ASGIApp:
        engine, began = served.engine, time.perf_counter()
        require_tokens(engine)
        body = await read_body(request, kind, engine.facts.n_ctx)
        if body.is_empty:
            return JSONBody(empty(body.model or engine.pair.name))
        task = await run_in_threadpool(lambda: EmbeddingTask(body.asked(engine), engine))
        scheduled = ScheduledTask(task)
        served.submit(scheduled)
        name = body.model or engine.pair.name
        return TaskResponse(scheduled, VectorFormatter(lambda: written(task, name, began)), stream=False)

    return Endpoint(path, embed, kind, response, refusal=OllamaErrorBody)


def all_vectors(task: EmbeddingTask, model: str, began: float) -> Event:
    """Return the body of EmbedResponse."""
    return {
        "model": model, "embeddings": task.vectors, "total_duration": int(NANO * (time.perf_counter() - began)),
        "load_duration": 0, "prompt_eval_count": task.n_prompt,
    }  # fmt: skip


def one_vector(task: EmbeddingTask, model: str, began: float) -> Event:
    """Return the body of OldEmbedResponse."""
    return {"embedding": task.vectors[0]}


ENDPOINTS = (
    embed_endpoint(
        "/api/embed", EmbedRequest, EmbedResponse, all_vectors, lambda model: {"model": model, "embeddings": []}
    ),
    embed_endpoint("/api/embeddings", OldEmbedRequest, OldEmbedResponse, one_vector, lambda model: {"embedding": []}),
)
