"""The served model in the lists of Ollama and of LM Studio. Nothing loads another one."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.types import ASGIApp

from app.reasoning import BEGIN
from app.server.endpoint import Endpoint, fact_endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel, read_body
from app.server.ollama.reply import moment
from app.server.served import ServedEngine
from app.server.wire import Event, JSONBody
from runtime.engine import Engine
from runtime.models.facts import ModelFacts, quantization
from runtime.models.header import read_model_header

VERSION = "0.12.6"  # of Ollama's interface; Copilot requires at least 0.6.4, as three plain numbers
TAG = ":latest"
NEVER = "9999-12-31T23:59:59Z"  # when the model is unloaded


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


@cache
def facts_of(path: Path) -> ModelFacts:
    """Return the facts in a file's header, which is slow to read."""
    return ModelFacts(read_model_header(path))


def served_model(engine: Engine) -> ModelFacts | None:
    """Return the facts of the served model, or None if a remote server has it."""
    return None if engine.facts.upstream else facts_of(engine.pair.target)


def tagged(name: str) -> str:
    """Return a model's name with a tag, as Ollama writes it."""
    return name if ":" in name else name + TAG


def large(n: int) -> str:
    """Return a number of parameters as text, in billions or millions."""
    return f"{n / 1e9:.1f}B" if n >= 1e9 else f"{n / 1e6:.2f}M"


def details(facts: ModelFacts | None) -> Event:
    """Return the details of a model's kind."""
    if facts is None:
        family, size, bits = "", "", ""
    else:
        family, size, bits = facts.architecture, large(facts.n_parameters), quantization(facts)
    return {
        "parent_model": "", "format": "gguf", "family": family, "families": [family] if family else [],
        "parameter_size": size, "quantization_level": bits,
    }  # fmt: skip


def entry(engine: Engine, facts: ModelFacts | None) -> Event:
    """Return the model's entry in a list."""
    name, size = tagged(engine.pair.name), engine.facts.n_bytes
    digest = hashlib.sha256(f"{name} {engine.facts.content}".encode()).hexdigest()  # a whole file is slow to read
    return {"name": name, "model": name, "size": size, "digest": digest, "details": details(facts)}


def changed(engine: Engine, facts: ModelFacts | None) -> str:
    """Return the modification time of the model's file, or the start of 1970 if there is none."""
    return moment(engine.pair.target.stat().st_mtime if facts else 0)


def version(served: ServedEngine) -> Event:
    """Return the body of OllamaVersion."""
    return {"version": VERSION}


def tags(served: ServedEngine) -> Event:
    """Return the model that can be used. Raises ApiError while it is being loaded."""
    engine = served.engine
    facts = served_model(engine)
    return {"models": [entry(engine, facts) | {"modified_at": changed(engine, facts)}]}


def loaded(served: ServedEngine) -> Event:
    """Return the model in memory. Raises ApiError while it is being loaded."""
    engine = served.engine
    in_gpu = engine.facts.n_bytes if engine.facts.has_gpu else 0
    more = {"expires_at": NEVER, "size_vram": in_gpu, "context_length": engine.facts.n_ctx}
    return {"models": [entry(engine, served_model(engine)) | more]}


def information(engine: Engine, facts: ModelFacts | None) -> Event:
    """Return the header fields that clients read. The context is the one in use here."""
    kind = facts.architecture if facts else "unknown"
    return {
        "general.architecture": kind,
        "general.basename": (facts and facts.name) or engine.pair.name,
        "general.parameter_count": facts.n_parameters if facts else 0,
        f"{kind}.context_length": engine.facts.n_ctx,
        f"{kind}.embedding_length": engine.facts.n_embd,
        f"{kind}.block_count": facts.n_layers if facts else 0,
    }


def abilities(engine: Engine) -> list[str]:
    """Return the model's capabilities. Tools always work: a model whose template lacks them has them described in its
    prompt.
    """
    can_infill, thinks = engine.facts.can_infill, BEGIN in engine.facts.template
    return ["completion", "tools", *["insert"] * can_infill, *["thinking"] * thinks]


async def show(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the body of OllamaModel. Raises ApiError for another model."""
    engine = served.engine
    body = await read_body(request, ShowRequest, engine.facts.n_ctx)
    name = body.model or body.name or ""
    if tagged(name) not in map(tagged, (engine.pair.name, *served.policy.aliases)):
        raise ApiError(404, f"There is no model '{name}' here. Served: {engine.pair.name}.", "model", "model_not_found")
    facts = served_model(engine)
    found: Event = {
        "details": details(facts), "model_info": information(engine, facts), "capabilities": abilities(engine),
        "template": engine.facts.template, "parameters": f"num_ctx {engine.facts.n_ctx}", "modelfile": "",
        "license": facts.licence if facts else "", "modified_at": changed(engine, facts),
    }  # fmt: skip
    return JSONBody(found)


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
    fact_endpoint("/api/version", OllamaVersion, version),
    fact_endpoint("/api/tags", OllamaModels, tags),
    fact_endpoint("/api/ps", OllamaModels, loaded),
    Endpoint("/api/show", show, ShowRequest, OllamaModel),
    fact_endpoint("/api/v0/models", OlderList, older),
    fact_endpoint("/api/v1/models", NewerList, newer),
)
