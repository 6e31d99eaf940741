"""The served models in the older and the newer list of LM Studio."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from app.server.described import Described
from app.server.endpoint import fact_endpoint
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from app.server.wire import Event


class OlderList(BaseModel):
    """The body of /api/v0/models."""

    object: str
    data: list[dict[str, Any]]


class NewerList(BaseModel):
    """The body of /api/v1/models."""

    models: list[dict[str, Any]]


def older(models: ServedModels) -> Event:
    """Return the body of OlderList. Raises ApiError while the only model is being loaded."""
    return {"object": "list", "data": [older_entry(each) for each in models.listed]}


def older_entry(model: ServedModel) -> Event:
    """Return a model's entry in the older list."""
    of = Described(model)
    in_use = {"loaded_context_length": of.n_context} if of.engine else {}
    return {
        "id": of.name, "object": "model", "type": "llm" if of.purpose == "completion" else "embeddings",
        "publisher": "slipstream", "arch": of.facts.architecture if of.facts else "", "compatibility_type": "gguf",
        "quantization": of.quantization, "state": "loaded" if of.engine else "not-loaded",
        "max_context_length": of.n_trained, **in_use,
        "capabilities": ["tool_use"] if of.purpose == "completion" else [],
    }  # fmt: skip


def newer(models: ServedModels) -> Event:
    """Return the body of NewerList. Raises ApiError while the only model is being loaded."""
    return {"models": [newer_entry(each) for each in models.listed]}


def newer_entry(model: ServedModel) -> Event:
    """Return a model's entry in the newer list."""
    of = Described(model)
    facts, instance = of.facts, {"id": of.name, "config": {"context_length": of.n_context}}
    return {
        "type": "llm" if of.purpose == "completion" else "embedding", "publisher": "slipstream", "key": of.name,
        "display_name": (facts and facts.name) or of.name,
        "architecture": facts.architecture if facts else None, "format": "gguf",
        "quantization": {"name": of.quantization, "bits_per_weight": round(facts.bits, 2)} if facts else None,
        "params_string": of.size or None, "size_bytes": of.n_bytes, "max_context_length": of.n_trained,
        "loaded_instances": [instance] if of.engine else [],
        "capabilities": {"vision": of.sees, "trained_for_tool_use": bool(facts and facts.takes_tools)},
        "description": of.pair.description or None,
    }  # fmt: skip


ENDPOINTS = (
    fact_endpoint("/api/v0/models", OlderList, older, reads_files=True),
    fact_endpoint("/api/v1/models", NewerList, newer, reads_files=True),
)
