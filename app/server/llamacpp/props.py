"""/props: the server's properties."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel

from app.server.endpoint import fact_endpoint
from app.server.llamacpp.generation_settings import sampling_settings
from app.server.served import ServedEngine
from app.server.wire import Event
from runtime.engine import Sampling


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


ENDPOINT = fact_endpoint("/props", PropsResponse, props)
