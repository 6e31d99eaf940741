"""LM Studio's model lists, for clients that read a model's state and context there. They load no model."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from app.server.endpoint import fact_endpoint
from app.server.ollama.errors import OllamaErrorBody
from app.server.ollama.models import large, served_model
from app.server.served import ServedEngine
from app.server.wire import Event
from runtime.models.file_types import quantization


class OlderList(BaseModel):
    """The body of /api/v0/models."""

    object: str
    data: list[dict[str, Any]]


class NewerList(BaseModel):
    """The body of /api/v1/models."""

    models: list[dict[str, Any]]


def older(served: ServedEngine) -> Event:
    """Return the body of OlderList. Raises ApiError while the model is being loaded."""
    engine = served.engine
    facts = served_model(engine)
    model: Event = {
        "id": engine.pair.name, "object": "model", "type": "llm", "publisher": "slipstream",
        "arch": facts.architecture if facts else "", "compatibility_type": "gguf",
        "quantization": quantization(facts) if facts else "", "state": "loaded",
        "max_context_length": engine.facts.n_ctx_train, "loaded_context_length": engine.facts.n_ctx,
        "capabilities": ["tool_use"],
    }  # fmt: skip
    return {"object": "list", "data": [model]}


def newer(served: ServedEngine) -> Event:
    """Return the body of NewerList. Raises ApiError while the model is being loaded."""
    engine = served.engine
    facts, name = served_model(engine), engine.pair.name
    model: Event = {
        "type": "llm", "publisher": "slipstream", "key": name, "display_name": (facts and facts.name) or name,
        "architecture": facts.architecture if facts else None, "format": "gguf",
        "quantization": {"name": quantization(facts), "bits_per_weight": round(facts.bits, 2)} if facts else None,
        "params_string": large(facts.n_parameters) if facts else None, "size_bytes": engine.facts.n_bytes,
        "max_context_length": engine.facts.n_ctx_train,
        "loaded_instances": [{"id": name, "config": {"context_length": engine.facts.n_ctx}}],
        "capabilities": {"vision": False, "trained_for_tool_use": bool(facts and facts.takes_tools)},
        "description": engine.pair.description or None,
    }  # fmt: skip
    return {"models": [model]}


ENDPOINTS = (
    fact_endpoint("/api/v0/models", OlderList, older, OllamaErrorBody),
    fact_endpoint("/api/v1/models", NewerList, newer, OllamaErrorBody),
)
