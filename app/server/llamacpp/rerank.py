"""/rerank, in the forms of Jina, Cohere and llama.cpp, and of Text Embeddings Inference: documents by their scores."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, RootModel, model_validator

from app.server.fields import Text, Whole, with_any
from app.server.pooling import MAX_INPUTS, PoolingRequest, PoolingTask, pooling_endpoint
from app.server.wire import Event
from runtime.engine import Engine


def as_text(value: object) -> object:
    """Return the text of an object with one, as Cohere's and Jina's clients send documents; else the value."""
    return value["text"] if isinstance(value, dict) and isinstance(value.get("text"), str) else value


class TextDocument(BaseModel):
    """A document as an object."""

    text: Text


Document = Annotated[Text, BeforeValidator(as_text, json_schema_input_type=Text | TextDocument)]
Documents = Annotated[list[Document], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]


class RerankRequest(PoolingRequest):
    """The body of a request to /rerank. With `texts`, it is one of Text Embeddings Inference."""

    model: str | None = None
    query: Text
    documents: Documents | None = None
    texts: Documents | None = None
    top_n: Annotated[Whole, Field(ge=1)] | None = None
    return_documents: bool | None = None
    return_text: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_documents(cls, value: Any) -> Any:
        """Return the fields with empty `documents` where there are none, which are refused by their name."""
        return with_any(value, "documents", "texts")

    @property
    def given(self) -> list[str]:
        """The documents."""
        return self.documents or self.texts or []

    def task(self, engine: Engine) -> PoolingTask:
        """See PoolingRequest."""
        field = "documents" if self.documents else "texts"
        return PoolingTask(engine, field, lambda: engine.pairs_to_ids(self.query, self.given))

    def ranked(self, scores: list[float]) -> list[tuple[int, float]]:
        """Return the indices and scores of the requested documents, the best first; equal ones as they were given."""
        order = sorted(enumerate(scores), key=lambda each: -each[1])
        return order[: self.top_n]


class RankedDocument(BaseModel):
    """A document's place in the request, and its score: higher is better."""

    index: int
    relevance_score: float
    document: TextDocument | None = None


class RerankUsage(BaseModel):
    """The tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class ScoredText(BaseModel):
    """A text's place in the request, and its score, as Text Embeddings Inference writes them."""

    index: int
    score: float
    text: str | None = None


class RerankResponse(BaseModel):
    """The body that answers a request to /rerank with `documents`."""

    object: Literal["list"]
    model: str
    results: list[RankedDocument]
    usage: RerankUsage


class AnyRanks(RootModel[RerankResponse | list[ScoredText]]):
    """The body that answers a request to /rerank: a list where the documents were `texts`."""


def ranked_body(body: RerankRequest, task: PoolingTask, engine: Engine) -> Event | list[Event]:
    """Return the body of RerankResponse, or the list of Text Embeddings Inference."""
    order = body.ranked(task.scores)
    if body.documents is None:
        return [entry("score", *each, {"text": body.given[each[0]]} if body.return_text else {}) for each in order]
    results = [
        entry("relevance_score", *each, {"document": {"text": body.given[each[0]]}} if body.return_documents else {})
        for each in order
    ]
    usage = {"prompt_tokens": task.n_prompt, "total_tokens": task.n_prompt}
    return {"object": "list", "model": engine.pair.name, "results": results, "usage": usage}


def entry(kind: str, index: int, score: float, more: Event) -> Event:
    """Return one document's entry."""
    return {"index": index, kind: score, **more}


ENDPOINTS = tuple(
    pooling_endpoint(path, RerankRequest, AnyRanks, ranked_body, need="reranking") for path in ("/rerank", "/reranking")
)
