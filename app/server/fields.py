"""The fields that requests of several endpoints share, checked by pydantic.

Unknown fields are ignored; null is the same as absent.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from app.server.errors import ApiError, from_validation
from runtime.engine import Grammar, Sampling
from runtime.models.registry import Pair

MAX_BODY = 32 * 2**20  # bytes
SETTINGS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "penalty_last_n",
)
MIB = 2**20
Biases = dict[str, float | Literal[False]] | list[tuple[int, float | Literal[False]]]


class Fields(BaseModel):
    """A JSON object that may hold more than is asked for."""

    model_config = ConfigDict(extra="ignore", strict=True)


AnyFields = TypeVar("AnyFields", bound=Fields)


async def read(request: Request, kind: type[AnyFields]) -> AnyFields:
    """The request's body. Raises ApiError for one that is too long, not JSON, or wrong in a field."""
    body = bytearray()
    if int(request.headers.get("content-length") or 0) > MAX_BODY:
        raise _too_long()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise _too_long()
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        raise from_validation(error) from None  # its own text would repeat the request


def _too_long() -> ApiError:
    return ApiError(413, f"The request is longer than {MAX_BODY // MIB} MiB. Send less text.", code="request_too_large")


def as_list(value: object) -> object:
    """One string as a list of one."""
    return [value] if isinstance(value, str) else text_or_list(value)


def text_or_list(value: object) -> object:
    """Raises PydanticCustomError for anything but a list: a text is one already."""
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "Input should be a text or a list")
    return value


def as_bias(value: object) -> object:
    """A list of [token, bias] pairs as a map; `false` forbids a token."""
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        value = {str(token): bias for token, bias in value}
    return (
        {token: -math.inf if bias is False else bias for token, bias in value.items()}
        if isinstance(value, dict)
        else value
    )


class TextPart(Fields):
    """A part of a message; only text can be read."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""


def as_parts(value: object) -> object:
    """A text as a list of one part."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else text_or_list(value)


Content = Annotated[list[TextPart], BeforeValidator(as_parts, json_schema_input_type=str | list[TextPart])]


def join(content: list[TextPart] | None) -> str:
    """The text of a message's or a prediction's content."""
    return "".join(part.text for part in content or ())


class StreamOptions(Fields):
    """What a stream says besides its text."""

    include_usage: bool | None = None


class SchemaFormat(Fields):
    """A JSON schema and its name."""

    json_schema: dict[str, Any] = Field(alias="schema")


class ResponseFormat(Fields):
    """What the reply must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    def grammar(self) -> Grammar | None:
        """As the engine wants it. Raises ApiError where the schema is missing."""
        if self.type == "json_schema":
            if self.json_schema is None:
                raise ApiError(
                    400, "response_format.json_schema is missing. Give {name, schema}.", "response_format.json_schema"
                )
            return Grammar("json_schema", json.dumps(self.json_schema.json_schema))
        return Grammar("json_object") if self.type == "json_object" else None


class Prediction(Fields):
    """Text that the reply will mostly repeat."""

    type: Literal["content"]
    content: Content


class SamplingFields(Fields):
    """How tokens are chosen; what is absent is the pair's own."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = Field(
        None, validation_alias=AliasChoices("repetition_penalty", "repeat_penalty")
    )
    penalty_last_n: int | None = Field(None, validation_alias=AliasChoices("penalty_last_n", "repeat_last_n"))
    logit_bias: (
        Annotated[
            dict[Annotated[int, Field(strict=False)], float], BeforeValidator(as_bias, json_schema_input_type=Biases)
        ]
        | None
    ) = None
    stop: Annotated[list[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])] | None = None

    def sampling(self, pair: Pair) -> Sampling:
        """Raises SettingsError. A seed of -1 means none, as in llama.cpp."""
        given = {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}
        seed = None if self.seed == -1 else self.seed
        return Sampling(**pair.sampling_defaults | given, seed=seed, logit_bias=tuple((self.logit_bias or {}).items()))


class OpenAIFields(SamplingFields):
    """What chat and text completions of OpenAI's interface share."""

    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    n_predict: Annotated[int, Field(ge=-1)] | None = None  # llama.cpp's name for it; -1: no limit
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None

    @property
    def limit(self) -> int | None:
        """Tokens that are asked for at most; 0: the prompt is only read."""
        return self.max_tokens if self.max_tokens is not None or self.n_predict == -1 else self.n_predict
