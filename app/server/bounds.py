"""How long a request and each of its fields may be: the one place that says so.

A text without a bound of its own is a name. Must not know an endpoint.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from app.server.errors import ApiError

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
