"""The parts that request bodies are made of, checked by pydantic. Must not know what an endpoint does with them.

Unknown fields are ignored; null is the same as absent.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError
from starlette.requests import Request

from app.server.errors import ApiError, from_validation

MIB = 2**20
MAX_BODY = 32 * MIB  # bytes


class RequestModel(BaseModel):
    """A JSON object that may hold more than is asked for."""

    model_config = ConfigDict(extra="ignore", strict=True)


AnyRequest = TypeVar("AnyRequest", bound=RequestModel)


async def read_body(request: Request, kind: type[AnyRequest]) -> AnyRequest:
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
    return [value] if isinstance(value, str) else require_list(value)


def require_list(value: object) -> object:
    """Raises PydanticCustomError for anything but a list, where the caller has dealt with text."""
    if not isinstance(value, list):
        raise PydanticCustomError("list_type", "Input should be a text or a list")
    return value


class TextPart(RequestModel):
    """A part of a message; only text can be read."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""


def as_parts(value: object) -> object:
    """A text as a list of one part."""
    return [{"type": "text", "text": value}] if isinstance(value, str) else require_list(value)


Content = Annotated[list[TextPart], BeforeValidator(as_parts, json_schema_input_type=str | list[TextPart])]


def text_of(content: list[TextPart] | None) -> str:
    """The text of a message's or a prediction's content."""
    return "".join(part.text for part in content or ())
