"""Parts of request bodies, checked by pydantic, and how long a request and each of its fields may be: nothing else says
so. A text without a bound of its own is a name.

Unknown fields are ignored; null is the same as absent. Must not know what an endpoint does with them.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.server.errors import ApiError, from_validation, overflow
from app.server.request_body import Room, reading
from app.server.wire import with_whole_characters

MAX_NAME = 1024  # characters of names, ids and words
MAX_TEXT = 2**26  # characters of a text that the model reads: as many as a rendered conversation may have
MAX_ENCODED = 2**21  # characters of a text whose tokens are returned: their list is packed in one go
MAX_SOURCE = 2**18  # characters of a grammar
MAX_OBJECT = 2**20  # characters of a schema or another object, as JSON
MAX_FEW, MAX_MANY = 1024, 2**20  # items of a list, and of one that the context bounds
MAX_TEXTS = 2**18  # of a request, with names of fields: the size of the largest vocabularies, for logit biases
MAX_VALUES = 2**21  # of a request
MAX_PARTS = 2**15  # lists and objects of a request, or of the arguments of a call
TEXTS_PER_TOKEN, PARTS_PER_TOKEN = 4, 2  # of context: a message has two fields with values, and at least one token
LONG_NUMBER, MAX_LONG = 200, 1000  # digits, and how often a request may have so many: reading takes their square
AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
ENCODER = json.JSONEncoder()

Item = TypeVar("Item")
# Media that this server's models cannot read, by the type of the part.
MEDIA = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "document",
}  # fmt: skip
NULL = {"type": "null"}
TEXTS = ("text", "input_text", "output_text", "refusal")  # types of parts that can be read


def short_object(value: dict[str, Any]) -> dict[str, Any]:
    """Raises PydanticCustomError for an object that is too long as JSON, before all of it is written."""
    left = MAX_OBJECT
    for piece in ENCODER.iterencode(value):
        left -= len(piece)
        if left < 0:
            message = "Input should have at most {most} characters as JSON"
            raise PydanticCustomError("object_too_long", message, {"most": MAX_OBJECT})
    return value


def few_entries(value: object) -> object:
    """Raises PydanticCustomError for an object with too many entries, before any is checked."""
    if isinstance(value, dict) and len(value) > MAX_FEW:
        raise PydanticCustomError("too_long", "Input should have at most {most} entries", {"most": MAX_FEW})
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT)]
Source = Annotated[str, Field(max_length=MAX_SOURCE)]
Object = Annotated[dict[str, Any], AfterValidator(short_object)]
Names = Annotated[dict[str, str], Field(max_length=MAX_FEW), BeforeValidator(few_entries)]
# The first error is told, so no others are sought.
Few = Annotated[list[Item], Field(max_length=MAX_FEW, fail_fast=True)]
Many = Annotated[list[Item], Field(max_length=MAX_MANY, fail_fast=True)]


def outside_texts(body: bytes | bytearray) -> bytes:
    """Return JSON with empty texts."""
    return b'""'.join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])


def n_parts(bare: bytes) -> int:
    """Return the number of lists and objects in JSON with empty texts."""
    return bare.count(b"[") + bare.count(b"{")


def is_quick(text: bytes) -> bool:
    """Whether JSON is parsed in little time, which nothing can interrupt."""
    return n_parts(outside_texts(text)) <= MAX_PARTS


def n_texts(body: bytes | bytearray) -> int:
    """Return the number of strings in JSON: half of the unescaped quotation marks."""
    return (body.count(b'"') - body.count(b'\\"')) // 2


def check_size(body: bytearray, n_ctx: int) -> None:
    """Raises ApiError for a body with too many values, before it is parsed, which nothing can interrupt."""
    require(n_texts(body), max(MAX_TEXTS, TEXTS_PER_TOKEN * n_ctx), "texts, including names of fields")
    bare = outside_texts(body)
    require(n_parts(bare), max(MAX_PARTS, PARTS_PER_TOKEN * n_ctx), "lists and objects")
    require(bare.count(b","), MAX_VALUES, "values")
    require(bare.translate(AS_ZEROS).count(b"0" * LONG_NUMBER), MAX_LONG, f"times {LONG_NUMBER} digits")


def require(n: int, most: int, what: str) -> None:
    """Raises ApiError for a number above the limit."""
    if n > most:
        message = f"The request has {n} {what}, but {most} are allowed. Send less."
        raise ApiError(413, message, code="request_too_large")


class RequestModel(BaseModel):
    """A JSON object. Unknown fields are allowed, and each known one has a bound of bounds.py."""

    model_config = ConfigDict(extra="ignore", strict=True, str_max_length=MAX_NAME)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        """Leave out null where a field may be absent."""
        if not isinstance(value, dict) or None not in value.values():
            return value
        needed = {field.alias or name for name, field in cls.model_fields.items() if field.is_required()}
        return {name: each for name, each in value.items() if each is not None or name in needed}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the model, with null wherever a field may be absent."""
        reference = handler(schema)
        found = handler.resolve_ref_schema(reference)
        fields, needed = found.get("properties", {}), found.get("required", ())
        for name in fields.keys() - set(needed):
            if NULL not in fields[name].get("anyOf", ()):
                fields[name] = {"anyOf": [fields[name], NULL]}
        return reference


AnyRequest = TypeVar("AnyRequest", bound=BaseModel)


async def read_body(
    request: Request, kind: type[AnyRequest], n_ctx: int, keeps: bool = False, sees_images: bool = False
) -> AnyRequest:
    """Return the request's body, which can be read again if it `keeps` it. Raises ApiError if it cannot be read, is not
    JSON, or has an invalid field, such as an image for a model that does not see any.
    """
    room: Room = request.app.state.room
    try:
        async with reading(request, room, keeps) as body:
            if len(body) <= 2**11:  # checked sooner than a thread is woken
                return checked(body, kind, n_ctx, sees_images)
            return await run_in_threadpool(checked, body, kind, n_ctx, sees_images)
    except ValidationError as error:
        raise from_validation(error) from None  # its own text would repeat the request


def checked(body: bytearray, kind: type[AnyRequest], n_ctx: int, sees_images: bool = False) -> AnyRequest:
    """Return the request from its body. Raises ValidationError, and ApiError for a body with too many parts, before any
    of them is parsed.
    """
    if (n_messages := body.count(b'"role"')) > n_ctx:
        raise overflow(n_messages, n_ctx, "messages")
    check_size(body, n_ctx)
    seen = {"sees_images": sees_images}
    whole = body[len(BOM_UTF8) :] if body.startswith(BOM_UTF8) else body
    try:
        return kind.model_validate_json(whole, context=seen)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
    return kind.model_validate_json(with_whole_characters(whole), context=seen)


def as_whole(value: object) -> object:
    """Return a number without a fraction as an integer: 16.0 is 16 in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(as_whole)]


def as_list(value: object) -> object:
    """Return one string as a list of one."""
    return [value] if isinstance(value, str) else require_list(value)


def require_list(value: object) -> list[Any]:
    """Return a list. Raises PydanticCustomError for anything else."""
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "Input should be a text or a list")
    return value


def with_any(value: Any, name: str, other: str) -> Any:
    """Return the fields of a request with an empty list as `name`, if they have neither that nor `other`."""
    is_lacking = isinstance(value, dict) and value.get(name) is None and value.get(other) is None
    return {**value, name: []} if is_lacking else value


def refuse_media(value: object) -> object:
    """Raises PydanticCustomError for a part of a message that is not text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in MEDIA:
        sentence = "Input should be text: {kind} input is not supported, so leave it out"
        raise PydanticCustomError("unsupported", sentence, {"kind": MEDIA[kind]})
    return value


def sees_images(info: ValidationInfo) -> bool:
    """Return whether the model that is asked can see images."""
    return bool(info.context and info.context.get("sees_images"))


class TextPart(RequestModel):
    """A part of a message; only text can be read."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: Text = ""


def as_parts(value: object) -> object:
    """Return a text as a list of one part."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else require_list(value)


AnyPart = Annotated[TextPart, BeforeValidator(refuse_media)]
Content = Annotated[Many[AnyPart], BeforeValidator(as_parts, json_schema_input_type=Text | list[TextPart])]


class OtherPart(RequestModel):
    """A part of another type, which is replaced by a note in results and earlier messages."""

    type: str


def text_of(content: list[TextPart] | None) -> str:
    """Return the text of a message's or a prediction's content."""
    return "".join(part.text for part in content or ())
