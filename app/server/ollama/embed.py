"""/api/embed and the older /api/embeddings of Ollama: texts as vectors."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from app.server.fields import Text, Whole, as_list
from app.server.ollama.reply import NANO
from app.server.pooling import MAX_INPUTS, PoolingRequest, PoolingTask, pooling_endpoint
from app.server.wire import Event
from runtime.engine import Engine

Texts = Annotated[
    list[Text],
    Field(max_length=MAX_INPUTS, fail_fast=True),
    BeforeValidator(as_list, json_schema_input_type=Text | list[Text]),
]


class EmbedRequest(PoolingRequest):
    """The body of a request to /api/embed."""

    model: str = ""
    input: Texts | None = None
    truncate: bool | None = None  # to the context; absent: yes
    dimensions: Annotated[Whole, Field(ge=1)] | None = None

    def task(self, engine: Engine) -> PoolingTask:
        """See PoolingRequest."""
        return PoolingTask(engine, "input", lambda: engine.texts_to_ids(self.input or [], self.truncate is not False))

    def answer_to_nothing(self, engine: Engine) -> Event | None:
        """See PoolingRequest."""
        return None if self.input else without_vectors(self.model or engine.pair.name)

    def written(self, task: PoolingTask, engine: Engine) -> Event:
        """Return the body of EmbedResponse."""
        seconds = time.perf_counter() - task.asked_at
        numbers = {"total_duration": int(NANO * seconds), "load_duration": 0, "prompt_eval_count": task.n_prompt}
        vectors = {"embeddings": task.vectors(self.dimensions).tolist()}
        return without_vectors(self.model or engine.pair.name) | vectors | numbers


def without_vectors(name: str) -> Event:
    """Return the answer to a request without a text."""
    return {"model": name, "embeddings": []}


class EmbedResponse(BaseModel):
    """The body that answers a request to /api/embed."""

    model: str
    embeddings: list[list[float]]
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0


class OldEmbedRequest(PoolingRequest):
    """The body of a request to /api/embeddings."""

    model: str = ""
    prompt: Text | None = None

    def task(self, engine: Engine) -> PoolingTask:
        """See PoolingRequest."""
        return PoolingTask(engine, "prompt", lambda: engine.texts_to_ids([self.prompt or ""], True))

    def answer_to_nothing(self, engine: Engine) -> Event | None:
        """See PoolingRequest."""
        return None if self.prompt else {"embedding": []}

    def written(self, task: PoolingTask, engine: Engine) -> Event:
        """Return the body of OldEmbedResponse."""
        return {"embedding": task.vectors()[0].tolist()}


class OldEmbedResponse(BaseModel):
    """The body that answers a request to /api/embeddings."""

    embedding: list[float]


ENDPOINTS = (
    pooling_endpoint("/api/embed", EmbedRequest, EmbedResponse, EmbedRequest.written, farewell=without_vectors),
    pooling_endpoint("/api/embeddings", OldEmbedRequest, OldEmbedResponse, OldEmbedRequest.written),
)
