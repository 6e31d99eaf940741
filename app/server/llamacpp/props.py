"""The server's state: /health, /metrics, /props, and the model's status as events. /rerank is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any, Literal

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, fact_endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel
from app.server.llamacpp.completion import sampling_settings
from app.server.metrics import Metrics
from app.server.served import ServedEngine
from app.server.wire import COMMENT, PING, SSE, Event, EventStreamResponse, sse
from runtime.engine import Sampling

INTERVAL = 0.2  # seconds between checks of the status
PATHS = ("/rerank", "/reranking")


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


class GenerationSettings(BaseModel):
    """The settings of a request that names none."""

    n_ctx: int
    params: dict[str, Any]


class PropsResponse(BaseModel):
    """The body of /props."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_tool_use: str = ""
    chat_template_caps: dict[str, bool]
    build_info: str


def props(served: ServedEngine) -> Event:
    """Return the body of PropsResponse. Raises ApiError while the model is being loaded.

    Tools work with any chat template: where it does not support them, they are described in the system prompt.
    """
    engine, pair, status = served.engine, served.engine.pair, served.engine.status
    tool_template = engine.facts.tool_template
    params = sampling_settings(Sampling(**pair.sampling_defaults))
    return {
        "default_generation_settings": {"n_ctx": engine.facts.n_ctx, "params": params},
        "total_slots": served.n_slots,
        "model_alias": pair.name,
        "model_path": pair.target.name or pair.upstream,
        "chat_template": engine.facts.template,
        **({"chat_template_tool_use": tool_template} if tool_template else {}),
        "chat_template_caps": {
            "supports_tools": True,
            "supports_tool_calls": True,
            "supports_system_role": "system" in engine.facts.template,
        },
        "modalities": {"vision": False, "audio": False},
        "can_infill": engine.facts.can_infill,
        "memory": {"level": status.memory_level, "given_up": status.given_up or None, "fit": engine.facts.fit or None},
        "build_info": f"slipstream {version('slipstream')}",
    }


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


class RerankRequest(RequestModel):
    """The body of a request to /rerank, which is ignored."""


async def refuse(served: ServedEngine, request: Request) -> ASGIApp:
    """Raises ApiError."""
    raise ApiError(
        501,
        "Reranking is not supported. Compare their vectors from /v1/embeddings with the query's, or "
        "ask a server that runs reranking models.",
    )


HEALTH = fact_endpoint("/health", HealthResponse, health)
METRICS = Endpoint("/metrics", metrics)
ENDPOINT = fact_endpoint("/props", PropsResponse, props)
STATUS = Endpoint("/models/sse", stream_status, streams=SSE)
RERANK = tuple(Endpoint(path, refuse, RerankRequest) for path in PATHS)
