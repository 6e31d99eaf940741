"""Serialization: compact JSON, halves of characters in it, and server-sent events. Must not know their meaning."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pydantic_core
from starlette.responses import Response, StreamingResponse

Event = dict[str, object]
PING = 3.0  # seconds of silence after which a stream sends a keep-alive, such as during prefill
COMMENT = b": still here\n\n"  # which clients ignore

# Escapes of UTF-16 in JSON: pairs of surrogates and other escapes are group 1, halves of pairs are the rest
SURROGATES = re.compile(rb"(\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|\\[^u])|\\u[dD][89a-fA-F]\w\w")

# For texts with halves of surrogate pairs, which pydantic refuses
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: object) -> bytes:
    """Return compact JSON in UTF-8. llama.vim looks for `"content":"` without a space.

    pydantic writes the numbers of a vector in a tenth of the time that Python takes.
    """
    try:
        return pydantic_core.to_json(value)
    except pydantic_core.PydanticSerializationError:
        return encode(value).encode("utf8", "replace")


def with_whole_characters(body: bytes | bytearray) -> bytes:
    """Return JSON with U+FFFD in place of each half of a surrogate pair, which is how a cut text may end."""
    return SURROGATES.sub(lambda found: found[1] or rb"\ufffd", body)


class JSONBody(Response):
    """A response whose body is a value as compact JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the body's bytes."""
        return to_json(content)


def sse(event: Event) -> bytes:
    """Return one server-sent event, with its name if it has one."""
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return name + b"data: " + to_json(event) + b"\n\n"


def line(event: Event) -> bytes:
    """Return one event as a line of JSON."""
    return to_json(event) + b"\n"


@dataclass(frozen=True, slots=True)
class Framing:
    """How a stream separates its events, and its keep-alive."""

    media_type: str
    encode: Callable[[Event], bytes]
    comment: bytes


SSE = Framing("text/event-stream", sse, COMMENT)
NDJSON = Framing("application/x-ndjson", line, b"")  # no comment: clients read each line as an event


class EventStreamResponse(StreamingResponse):
    """A response that streams encoded events."""

    def __init__(self, events: AsyncIterator[bytes], media_type: str = SSE.media_type) -> None:
        # no caching, and nginx must not buffer events
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(events, headers=headers, media_type=media_type)
