"""/api/embed and the older /api/embeddings of Ollama: texts as vectors."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, require_tokens
from app.server.fields import RequestModel, Text, Whole, as_list, read_body
from app.server.ollama.reply import NANO
from app.server.openai.embeddings import MAX_INPUTS, EmbeddingsRequest, EmbeddingTask, embedded
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


def cut(text: str, engine: Engine) -> list[int]:
    """Return a text's first tokens, up to the size of the context."""
    return engine.tokenize(text, special=False, bos=True)[: engine.facts.n_ctx]


async def embed(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the vectors of texts. Without a text, the model is only to be loaded."""
    engine, began = served.engine, time.perf_counter()
    require_tokens(engine)
    body = await read_body(request, EmbedRequest, engine.facts.n_ctx)
    found: Event = {"model": body.model or engine.pair.name, "embeddings": []}
    if not (given := body.input):
        return JSONBody(found)

    def asked() -> EmbeddingsRequest:
        texts: list[str | list[int]] = [each if body.truncate is False else cut(each, engine) for each in given]
        return EmbeddingsRequest(input=texts, dimensions=body.dimensions)

    def written(task: EmbeddingTask) -> Event:
        seconds = time.perf_counter() - began
        numbers = {"total_duration": int(NANO * seconds), "load_duration": 0, "prompt_eval_count": task.n_prompt}
        return found | {"embeddings": task.vectors} | numbers

    return await embedded(served, asked, written)


async def embed_one(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the vector of a text, as `embed` does."""
    engine = served.engine
    require_tokens(engine)
    body = await read_body(request, OldEmbedRequest, engine.facts.n_ctx)
    if not (text := body.prompt):
        return JSONBody({"embedding": []})
    return await embedded(
        served, lambda: EmbeddingsRequest(input=[cut(text, engine)]), lambda task: {"embedding": task.vectors[0]}
    )


ENDPOINTS = (
    Endpoint("/api/embed", embed, EmbedRequest, EmbedResponse),
    Endpoint("/api/embeddings", embed_one, OldEmbedRequest, OldEmbedResponse),
)
