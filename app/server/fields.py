"""Parts of request bodies, checked by pydantic. Must not know what an endpoint does with them.

Unknown fields are ignored; null is the same as absent.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.server.bounds import MAX_NAME, Many, Text, check_size
from app.server.errors import Overflow, from_validation
from app.server.request_body import Room, reading
from app.server.wire import with_whole_characters

# Media that this server's models cannot read, by the type of the part.
MEDIA = {
    "image": "image", "image_url": "image", "input_image": "image",
    "audio": "audio", "audio_url": "audio", "input_audio": "audio",
    "video": "video", "video_url": "video", "input_video": "video",
    "file": "file", "input_file": "file", "document": "document",
}  # fmt: skip
NULL = {"type": "null"}
TEXTS = ("text", "input_text", "output_text", "refusal")  # types of parts that can be read


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


AnyRequest = TypeVar("AnyRequest", bound=RequestModel)


async def read_body(request: Request, kind: type[AnyRequest], n_ctx: int) -> AnyRequest:
    """Return the request's body. Raises ApiError if it cannot be read, is not JSON, or has an invalid field."""
    room: Room = request.app.state.room
    try:
        async with reading(request, room) as body:
            return await run_in_threadpool(checked, body, kind, n_ctx)
    except ValidationError as error:
        raise from_validation(error) from None  # its own text would repeat the request


def checked(body: bytearray, kind: type[AnyRequest], n_ctx: int) -> AnyRequest:
    """Return the request from its body. Raises ValidationError, and ApiError for a body with too many parts, before any
    of them is parsed.
    """
    if (n_messages := body.count(b'"role"')) > n_ctx:
        raise Overflow(n_messages, n_ctx).error("messages")
    check_size(body, n_ctx)
    whole = body[len(BOM_UTF8) :] if body.startswith(BOM_UTF8) else body
    try:
        return kind.model_validate_json(whole)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
    return kind.model_validate_json(with_whole_characters(whole))


def as_whole(value: object) -> object:
    """Return a number without a fraction as an integer: 16.0 is 16 in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(as_whole)]


def as_list(value: object) -> object:
    """Return one string as a list of one."""
    return [value] if isinstance(value, str) else require_list(value)


def require_list(value: object) -> object:
    """Raises PydanticCustomError for anything but a list."""
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "Input should be a text or a list")
    return value


def refuse_media(value: object) -> object:
    """Raises PydanticCustomError for a part of a message that is not text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in MEDIA:
        sentence = "Input should be text: {kind} input is not supported, so leave it out"
        raise PydanticCustomError("unsupported", sentence, {"kind": MEDIA[kind]})
    return value


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


ChatContent = Annotated[
    Many[AnyPart], BeforeValidator(as_parts, json_schema_input_type=Text | list[TextPart | OtherPart])
]


def text_of(content: list[TextPart] | None) -> str:
    """Return the text of a message's or a prediction's content."""
    return "".join(part.text for part in content or ())
