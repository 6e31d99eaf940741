"""/v1/embeddings, and llama.cpp's /embedding: texts, also with images, as vectors."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, RootModel, ValidationInfo, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from app.server.fields import TEXTS, Many, OtherPart, Text, TextPart, Whole, require_list, with_any
from app.server.generation import as_it_is, as_prompt
from app.server.pictures import ImagePart, MarkedPrompt, read_media
from app.server.pooling import MAX_INPUTS, SHORT, PoolingRequest, PoolingTask, ShortTask, Vectors, pooling_endpoint
from app.server.wire import Event
from runtime.engine import Engine, with_images

NEITHER = "Input should be a text, token ids, or text parts as `content`"


class PromptObject(BaseModel):
    """A text as an object of llama.cpp's interface: as it is, or as the parts of a message; either with images."""

    prompt_string: Text | None = None
    multimodal_data: Many[Text] | None = None
    content: Many[TextPart | OtherPart] | None = None


def as_inputs(value: object) -> object:
    """Return a single input as a list of one: a text, an object, or a list in which a token id occurs."""
    is_ids = isinstance(value, list) and any(isinstance(each, int) for each in value)
    return [value] if isinstance(value, str | dict) or is_ids else require_list(value)


def as_entry(value: object, info: ValidationInfo) -> object:
    """Return the text of an object, or its text with images, else the value. Raises PydanticCustomError for an object
    without a text, and for images where the model sees none.
    """
    if not isinstance(value, dict):
        return value
    if "prompt_string" in value:
        return as_prompt(value, info)
    parts = value.get("content")
    if not isinstance(parts, list):
        raise PydanticCustomError("text_type", NEITHER)
    return of_parts([as_part(part, info) for part in parts])


def as_part(value: object, info: ValidationInfo) -> TextPart:
    """Return a part of a message. Raises PydanticCustomError for what is neither text nor an image that is seen."""
    part = read_media(value, info)
    if isinstance(part, TextPart):
        return part
    if isinstance(part, dict) and part.get("type") in TEXTS and isinstance(part.get("text"), str):
        return TextPart.model_validate(part)
    raise PydanticCustomError("text_type", NEITHER)


def of_parts(parts: Sequence[TextPart]) -> str | MarkedPrompt:
    """Return the text of a message's parts, with the images among them."""
    text, images = "".join(part.text for part in parts), [part for part in parts if isinstance(part, ImagePart)]
    return MarkedPrompt(text=text, images=images) if images else text


Piece = Annotated[Whole, Field(ge=0)] | Text
Entry = Annotated[
    Text | Many[Piece],
    WrapValidator(as_it_is),
    BeforeValidator(as_entry, json_schema_input_type=Text | list[Piece] | PromptObject),
]
Inputs = Annotated[
    list[Entry],
    Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True),
    BeforeValidator(as_inputs, json_schema_input_type=Text | PromptObject | list[Piece] | list[Entry]),
]


class EmbeddingsRequest(PoolingRequest):
    """The body of a request to /v1/embeddings; `content` is llama.cpp's name of `input`."""

    model: str | None = None
    input: Inputs | None = None
    content: Inputs | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[Whole, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_texts(cls, value: Any) -> Any:
        """Return the fields with an empty `input` where there are no texts, which is refused by its name."""
        return with_any(value, "input", "content")

    def tokens(self, engine: Engine) -> list[list[int]]:
        """Return the token ids of each input; a text among ids gets none around it."""
        given = self.input or self.content or []
        encoded = iter(engine.texts_to_ids([each for each in given if isinstance(each, str)]))
        return [next(encoded) if isinstance(each, str) else ids_of(each, engine) for each in given]

    @property
    def field(self) -> str:
        """The name of the field that has the texts."""
        return "input" if self.input else "content"

    def task(self, engine: Engine) -> PoolingTask:
        """See PoolingRequest."""
        return PoolingTask(engine, self.field, partial(self.tokens, engine))

    def short(self) -> ShortTask | None:
        """See PoolingRequest."""
        match self.input or self.content:
            case [str(text)] if 0 < len(text) <= SHORT:
                return ShortTask(self.field, text)
        return None


def ids_of(given: Sequence[int | str] | MarkedPrompt, engine: Engine) -> list[int]:
    """Return token ids and texts, or a text with images, as ids."""
    if isinstance(given, MarkedPrompt):
        return engine.encode(with_images(given.text, [each.image for each in given.images]))
    found = ([each] if isinstance(each, int) else engine.tokenize(each, special=False) for each in given)
    return [token for some in found for token in some]


class VectorEntry(BaseModel):
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
    data: list[VectorEntry]
    model: str
    usage: EmbeddingsUsage


class NestedEntry(BaseModel):
    """An embedding as llama.cpp writes it: a list of one vector."""

    index: int
    embedding: list[list[float]]


class NestedResponse(RootModel[list[NestedEntry]]):
    """The body that answers a request to /embedding, or with `content`."""


class AnyVectors(RootModel[EmbeddingsResponse | NestedResponse]):
    """The body that answers a request to /embeddings: a list where the texts were `content`."""


def packed(vector: Vectors) -> str:
    """Return a vector as base64 of 32-bit floats, little-endian."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def openai_body(body: EmbeddingsRequest, task: PoolingTask, engine: Engine) -> Event:
    """Return the body of EmbeddingsResponse."""
    vectors, n = task.vectors(body.dimensions), task.n_prompt
    written = [packed(each) for each in vectors] if body.encoding_format == "base64" else vectors.tolist()
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(written)]
    usage = {"prompt_tokens": n, "total_tokens": n}
    return {"object": "list", "data": data, "model": engine.pair.name, "usage": usage}


def nested_body(body: EmbeddingsRequest, task: PoolingTask, engine: Engine) -> list[Event]:
    """Return the body of NestedResponse."""
    return [{"index": i, "embedding": [vector]} for i, vector in enumerate(task.vectors(body.dimensions).tolist())]


def vectors_body(body: EmbeddingsRequest, task: PoolingTask, engine: Engine) -> Event | list[Event]:
    """Return the body of AnyVectors."""
    return (nested_body if body.content else openai_body)(body, task, engine)


ENDPOINT = pooling_endpoint("/embeddings", EmbeddingsRequest, AnyVectors, vectors_body)
NESTED = pooling_endpoint("/embedding", EmbeddingsRequest, NestedResponse, nested_body)
