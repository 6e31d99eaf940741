"""How values go over the wire: compact JSON, and server-sent events. Must not know what they mean."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from starlette.responses import Response

Event = dict[str, object]
PING = 3.0  # seconds between two comment lines, by which a stream shows that it lives while a prompt is read
AppStatus.enable_automatic_graceful_drain = False  # a server that stops ends its streams itself, each with a last event

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


def event_stream(events: AsyncIterator[bytes]) -> EventSourceResponse:
    """A response that streams encoded events; `events` is cancelled when the client goes away."""
    headers = {"cache-control": "no-cache"}
    return EventSourceResponse(events, headers=headers, ping=PING, sep="\n")
