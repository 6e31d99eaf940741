"""Embeddings as OpenAI's clients ask for them and read them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from app.server.errors import ApiError
from app.server.fields import Fields, text_or_list
from app.server.reply import Event
from runtime.engine import Chunk, Engine

TokenIds = list[Annotated[int, Field(ge=0)]]
MOST = 2048  # inputs, as with OpenAI


def as_inputs(value: object) -> object:
    """One text, or one list of ids, as a list of one."""
    is_ids = isinstance(value, list) and bool(value) and all(isinstance(each, int) for each in value)
    return [value] if isinstance(value, str) or is_ids else text_or_list(value)


Inputs = Annotated[
    list[str | TokenIds],
    Field(min_length=1, max_length=MOST),
    BeforeValidator(as_inputs, json_schema_input_type=str | TokenIds | list[str | TokenIds]),
]


class EmbeddingsRequest(Fields):
    """The body of /v1/embeddings."""

    model: str | None = None
    input: Inputs
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None

    def tokens(self, engine: Engine) -> list[list[int]]:
        """Of each input. Raises ApiError for what cannot be embedded."""
        found = [
            engine.tokenize(each, special=False, bos=True) if isinstance(each, str) else list(each)
            for each in self.input
        ]
        if any(token >= engine.vocab.n_vocab for ids in found for token in ids):
            raise ApiError(400, f"input: the model has {engine.vocab.n_vocab} tokens. Use ids below that.", "input")
        if any(not 0 < len(ids) <= engine.n_ctx for ids in found):
            raise ApiError(
                400,
                f"input: each text must have from 1 to {engine.n_ctx} tokens. Split it.",
                "input",
                "context_length_exceeded",
            )
        if self.dimensions not in (None, engine.n_embd):
            raise ApiError(
                400, f"dimensions: the model has {engine.n_embd}, which cannot be changed. Leave it out.", "dimensions"
            )
        return found


class Embedding:
    """The vectors of one request as they are made. Implements Work."""

    text_field, max_tokens, max_seconds = "input", None, None

    def __init__(self, request: EmbeddingsRequest, engine: Engine) -> None:
        self.tokens = request.tokens(engine)
        self.is_short = len(self.tokens) == 1
        self.vectors: list[list[float]] = []

    def begin(self, engine: Engine, cancel: Callable[[], bool], on_read: Callable[[], None]) -> Iterator[Chunk]:
        """An empty chunk for each vector, so that others may have their turn."""
        for ids in self.tokens:
            if cancel():
                break
            self.vectors.append(engine.embed(ids))
            yield Chunk("")
        yield Chunk("", finish_reason="cancelled" if cancel() else "stop")


class EmbeddingsForm:
    """The body of embeddings, which do not stream. Implements Form."""

    last_line = b""

    def __init__(self, embedding: Embedding, model: str, as_base64: bool) -> None:
        self.embedding, self.model, self.as_base64 = embedding, model, as_base64

    def begin(self) -> Iterable[Event]:
        """Nothing."""
        return ()

    def piece(self, chunk: Chunk) -> Iterable[Event]:
        """Nothing."""
        return ()

    def end(self, last: Chunk) -> Iterable[Event]:
        """Nothing."""
        return ()

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The vectors."""
        vectors, n = self.embedding.vectors, sum(map(len, self.embedding.tokens))
        data = [
            {"object": "embedding", "index": i, "embedding": self._encoded(vector)} for i, vector in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": self.model, "usage": {"prompt_tokens": n, "total_tokens": n}}

    def _encoded(self, vector: list[float]) -> list[float] | str:
        """Base64 is of 32-bit floats, little-endian."""
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if self.as_base64 else vector
