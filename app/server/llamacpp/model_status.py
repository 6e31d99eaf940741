"""/models/sse: the model's status as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from app.server.endpoint import Endpoint
from app.server.served import ServedEngine
from app.server.wire import COMMENT, PING, SSE, EventStreamResponse, sse

INTERVAL = 0.2  # seconds between checks of the status


async def statuses(served: ServedEngine) -> AsyncIterator[bytes]:
    """Yield an event for the current status and for each change, until the server stops."""
    sent, silence = "", 0.0
    while not served.is_stopping:
        if (status := "loaded" if served.is_loaded else "loading") != sent:
            sent, silence = status, 0.0
            yield sse({"model": served.model, "event": "model_status", "data": {"status": status}})
        elif silence >= PING:
            silence = 0.0
            yield COMMENT
        await asyncio.sleep(INTERVAL)
        silence += INTERVAL


async def stream_status(served: ServedEngine, request: Request) -> Response:
    """Stream the statuses. A HEAD request returns immediately."""
    stream = EventStreamResponse(statuses(served))
    return Response(headers=stream.headers) if request.method == "HEAD" else stream


ENDPOINT = Endpoint("/models/sse", stream_status, streams=SSE)
