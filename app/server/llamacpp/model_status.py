"""/models/sse: the model's status as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from app.server.endpoint import Endpoint
from app.server.wire import COMMENT, PING, SSE, EventStreamResponse, sse
from app.server.worker import Worker

INTERVAL = 0.2  # seconds between checks of the status


async def statuses(worker: Worker) -> AsyncIterator[bytes]:
    """Yield an event for the current status and for each change, until the server stops."""
    sent, silence = "", 0.0
    while not worker.is_stopping:
        if (status := "loaded" if worker.is_loaded else "loading") != sent:
            sent, silence = status, 0.0
            yield sse({"model": worker.model, "event": "model_status", "data": {"status": status}})
        elif silence >= PING:
            silence = 0.0
            yield COMMENT
        await asyncio.sleep(INTERVAL)
        silence += INTERVAL


async def stream_status(worker: Worker, request: Request) -> Response:
    """Stream the statuses. A HEAD request returns immediately."""
    stream = EventStreamResponse(statuses(worker))
    return Response(headers=stream.headers) if request.method == "HEAD" else stream


ENDPOINT = Endpoint("/models/sse", stream_status, streams=SSE)
