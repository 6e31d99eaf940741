"""How values go over the wire: compact JSON, and server-sent events. Must not know what they mean."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

Event = dict[str, object]
PING = 3.0  # seconds of silence after which a stream shows that it lives, as while a prompt is read
COMMENT = b": still here\n\n"  # which clients ignore

# Made once, as it is wanted for each token
encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: object) -> bytes:
    """Compact JSON in UTF-8; llama.vim looks for `"content":"` without a space."""
    return encode(value).encode("utf8", "replace")


class JSONBody(Response):
    """A response whose body is a value as compact JSON."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """The body's bytes."""
        return to_json(content)


def sse(event: Event) -> bytes:
    """One server-sent event, under its name where it has one."""
    name = f"event: {event['type']}\n".encode() if "type" in event else b""
    return name + b"data: " + to_json(event) + b"\n\n"


class EventStreamResponse(StreamingResponse):
    """A response that streams encoded events."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        # no cache may keep it, and nginx is to pass on each event as it comes
        super().__init__(events, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
