"""The served models in the lists of Ollama, and in the older and the newer one of LM Studio."""

from __future__ import annotations

import time
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.described import Described, moment
from app.server.endpoint import Endpoint, fact_endpoint
from app.server.fields import RequestModel, read_body
from app.server.known_models import TAG
from app.server.openai.models import CONTEXT, required
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from app.server.wire import Event, JSONBody
from runtime.models.adapters import titles

VERSION = "0.12.6"  # of Ollama's interface; Copilot requires at least 0.6.4, as three plain numbers
NEVER = "9999-12-31T23:59:59Z"  # when a model is unloaded that stays


class OllamaVersion(BaseModel):
    """The body of /api/version."""

    version: str


class OllamaModels(BaseModel):
    """The body of /api/tags and /api/ps."""

    models: list[dict[str, Any]]


class OllamaModel(BaseModel):
    """The body of /api/show."""

    model_config = {"protected_namespaces": ()}
    details: dict[str, Any]
    model_info: dict[str, Any]
    capabilities: list[str]
    template: str
    parameters: str
    modified_at: str


class ShowRequest(RequestModel):
    """The body of a request to /api/show; `name` is the older field."""

    model: Annotated[str, Field(min_length=1)] | None = None
    name: str | None = None


def tagged(name: str) -> str:
    """Return a model's name with a tag, as Ollama writes it."""
    return name if ":" in name else name + TAG


def entry(of: Described) -> Event:
    """Return a model's entry in a list."""
    name = tagged(of.name)
    return {"name": name, "model": name, "size": of.n_bytes, "digest": of.digest, "details": of.kind}


def version(models: ServedModels) -> Event:
    """Return the body of OllamaVersion."""
    return {"version": VERSION}


def tags(models: ServedModels) -> Event:
    """Return the models that can be used. Raises ApiError while the only one is being loaded."""
    known = [(each, Described(each)) for each in models.listed]
    return {"models": [each | {"modified_at": of.changed} for model, of in known for each in entries(model, of)]}


def entries(model: ServedModel, of: Described) -> list[Event]:
    """Return the entries of a model, and of each of its LoRA adapters under a name of its own."""
    names = [f"{of.name}:{title}" for title in titles(model.adapters)]
    return [entry(of), *(entry(of) | {"name": name, "model": name} for name in names)]


def loaded(models: ServedModels) -> Event:
    """Return the models in memory. Raises ApiError while the only one is being loaded."""
    return {"models": [running(each) for each in models.listed if each.is_loaded]}


def running(model: ServedModel) -> Event:
    """Return the entry of a model in memory."""
    of, leaves = Described(model), NEVER
    if model.keep_alive is not None and not model.stays:
        leaves = moment(time.time() + max(0.0, model.used_at + model.keep_alive - time.monotonic()))
    in_gpu = of.n_bytes if of.engine and of.engine.facts.has_gpu else 0
    return entry(of) | {"expires_at": leaves, "size_vram": in_gpu, "context_length": of.n_context}


def information(of: Described) -> Event:
    """Return the header fields that clients read. The context is the one in use here, if it is loaded."""
    kind = of.facts.architecture if of.facts else "unknown"
    width = of.engine.facts.n_embd if of.engine else of.facts.own("embedding_length") if of.facts else 0
    return {
        "general.architecture": kind,
        "general.basename": (of.facts and of.facts.name) or of.name,
        "general.parameter_count": of.facts.n_parameters if of.facts else 0,
        f"{kind}.context_length": of.n_context,
        f"{kind}.embedding_length": width,
        f"{kind}.block_count": of.facts.n_layers if of.facts else 0,
    }


async def show(models: ServedModels, request: Request) -> ASGIApp:
    """Answer with the body of OllamaModel. Raises ApiError for another model."""
    n_ctx = models.only.engine.facts.n_ctx if models.only else CONTEXT
    body = await read_body(request, ShowRequest, n_ctx)
    return JSONBody(await run_in_threadpool(shown, Described(required(models, body.model or body.name or ""))))


def shown(of: Described) -> Event:
    """Return the body of OllamaModel."""
    return {
        "details": of.kind, "model_info": information(of), "capabilities": of.abilities,
        "template": of.template, "parameters": f"num_ctx {of.n_context}", "modelfile": "",
        "license": of.facts.licence if of.facts else "", "modified_at": of.changed,
    }  # fmt: skip


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
    fact_endpoint("/api/version", OllamaVersion, version),
    fact_endpoint("/api/tags", OllamaModels, tags, reads_files=True),
    fact_endpoint("/api/ps", OllamaModels, loaded, reads_files=True),
    Endpoint("/api/show", show, ShowRequest, OllamaModel),
    fact_endpoint("/api/v0/models", OlderList, older, reads_files=True),
    fact_endpoint("/api/v1/models", NewerList, newer, reads_files=True),
)
