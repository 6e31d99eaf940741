"""Endpoints for monitoring: readiness and metrics."""

from __future__ import annotations

from typing import Literal

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from app.server.endpoint import Endpoint, fact_endpoint
from app.server.metrics import Metrics
from app.server.served import ServedEngine
from app.server.wire import Event


class HealthResponse(BaseModel):
    """The body of /health once the model is loaded; before that it is an error."""

    status: Literal["ok"]
    model: str


def health(served: ServedEngine) -> Event:
    """Return the body of HealthResponse. Raises ApiError while the model is being loaded."""
    return {"status": "ok", "model": served.engine.pair.name}


async def metrics(served: ServedEngine, request: Request) -> Response:
    """Return the counts over all replies in Prometheus' text format."""
    started = {"process-start-time-unix": str(served.created_at)}
    return Response(Metrics(served).text(), media_type=CONTENT_TYPE_LATEST, headers=started)


HEALTH = fact_endpoint("/health", HealthResponse, health)
METRICS = Endpoint("/metrics", metrics)
