"""The server's state: /health, /metrics, /props, and the model's status as events."""

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

from app.server.choosing import chosen
from app.server.endpoint import Endpoint, fact_endpoint
from app.server.llamacpp.completion import sampling_settings
from app.server.metrics import Metrics
from app.server.served import ServedEngine
from app.server.served_models import ServedModels
from app.server.wire import COMMENT, PING, SSE, Event, EventStreamResponse, JSONBody, sse
from runtime.engine import sampling_of

INTERVAL = 0.2  # seconds between checks of the status


BUILD = f"slipstream {version('slipstream')}"
# The properties of a server while none of its several models is loaded
ROUTER: Event = {
    "role": "router", "default_generation_settings": {"n_ctx": 0, "params": {}}, "total_slots": 0, "model_alias": "",
    "model_path": "", "chat_template": "", "chat_template_caps": {},
}  # fmt: skip


class HealthResponse(BaseModel):
    """The body of /health once the model is loaded; before that it is an error."""

    status: Literal["ok"]
    model: str


def health(models: ServedModels) -> Event:
    """Return the body of HealthResponse, with the model used last. Raises ApiError while the only one is being
    loaded.
    """
    model = models.current if models.listed else None
    return {"status": "ok", "model": model.name if model else ""}


async def metrics(models: ServedModels, request: Request) -> Response:
    """Return the counts over all replies of all models in Prometheus' text format."""
    started = {"process-start-time-unix": str(models.created_at)}
    return Response(Metrics(models).text(), media_type=CONTENT_TYPE_LATEST, headers=started)


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


async def props(models: ServedModels, request: Request) -> ASGIApp:
    """Answer with the body of PropsResponse for the model that the query names. Without a name, for a server of several
    models, it is that of the one used last, or of none.
    """
    if models.only is None and models.current is None and not request.query_params.get("model"):
        policy = models.policy
        own = {"max_instances": policy.max_models or 0, "models_autoload": policy.loads_models, "build_info": BUILD}
        return JSONBody(ROUTER | own)
    return await chosen(models, show_props, None, request)


async def show_props(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the body of PropsResponse. Raises ApiError while the model is being loaded.

    Tools work with any chat template: where it does not support them, they are described in the system prompt.
    """
    engine, pair, status = served.engine, served.engine.pair, served.engine.status
    tool_template = engine.facts.tool_template
    params = sampling_settings(sampling_of(pair.sampling_defaults))
    found: Event = {
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
        "modalities": {"vision": bool(engine.facts.vision), "audio": False},
        "can_infill": engine.facts.can_infill,
        "memory": {"level": status.memory_level, "given_up": status.given_up or None, "fit": engine.facts.fit or None},
        "build_info": BUILD,
    }
    return JSONBody(found)


async def statuses(models: ServedModels) -> AsyncIterator[bytes]:
    """Yield an event for each model that is not unloaded and for each change, until the server stops."""
    sent, silence = dict[str, str](), 0.0
    while not models.is_stopping:
        changed = [each for each in models.models if sent.get(each.name, "unloaded") != each.state]
        for each in changed:
            sent[each.name] = each.state
            yield sse({"model": each.name, "event": "model_status", "data": {"status": each.state}})
        silence = 0.0 if changed else silence + INTERVAL
        if silence >= PING:
            silence = 0.0
            yield COMMENT
        await asyncio.sleep(INTERVAL)


async def stream_status(models: ServedModels, request: Request) -> Response:
    """Stream the statuses. A HEAD request returns immediately."""
    stream = EventStreamResponse(statuses(models))
    return Response(headers=stream.headers) if request.method == "HEAD" else stream


HEALTH = fact_endpoint("/health", HealthResponse, health)
METRICS = Endpoint("/metrics", metrics)
ENDPOINT = Endpoint("/props", props, response=PropsResponse)
STATUS = Endpoint("/models/sse", stream_status, streams=SSE)
