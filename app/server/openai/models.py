"""The models in OpenAI's list, with the fields and the other list that llama.cpp's clients read; they are loaded and
unloaded by hand as with its router.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.described import Described
from app.server.endpoint import Endpoint
from app.server.errors import ApiError
from app.server.fields import RequestModel, read_body
from app.server.known_models import split_name, usual
from app.server.served_model import ServedModel
from app.server.served_models import ServedModels
from app.server.wire import Event, JSONBody
from runtime.models.adapters import titles

CONTEXT = 2**12  # tokens: more than a body with a name needs


class ModelMeta(BaseModel):
    """A model's limits: tokens and bytes."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    size: int


class ModelStatus(BaseModel):
    """Whether the model is in memory, and whether it could be loaded when that was tried last."""

    value: Literal["loaded", "loading", "unloaded"]
    failed: bool = False
    error: str = ""


class ModelCard(BaseModel):
    """A model that is served. `meta` is known while it is loaded."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    meta: ModelMeta | None
    status: ModelStatus
    capabilities: list[str] = []  # one of completion, embedding and reranking; multimodal if it sees images
    parent: str = ""  # the model, of an entry for one of its LoRA adapters


class ModelBrief(BaseModel):
    """A model in the other list that llama.cpp's server gives, by Ollama's fields: bytes, and the time of its file."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    type: Literal["model"]
    description: str
    tags: list[str]
    capabilities: list[str]
    parameters: str
    details: dict[str, Any]


class ModelList(BaseModel):
    """The body of /models. Both lists have the same models."""

    object: Literal["list"]
    data: list[ModelCard]
    models: list[ModelBrief]


def abilities(of: Described) -> list[str]:
    """Return what a model can do, as llama.cpp names it."""
    return [of.purpose, *["multimodal"] * of.sees]


def model_brief(model: ServedModel) -> Event:
    """Return the body of ModelBrief."""
    of = Described(model)
    return {
        "name": of.name, "model": of.name, "modified_at": of.changed, "size": of.n_bytes, "digest": of.digest,
        "type": "model", "description": of.pair.description, "tags": [], "capabilities": abilities(of),
        "parameters": "", "details": of.kind,
    }  # fmt: skip


def model_card(models: ServedModels, model: ServedModel) -> Event:
    """Return the body of ModelCard. Zed reads `meta.n_ctx` and `status.value`."""
    of = Described(model)
    failed = {"failed": True, "error": str(model.failure[1])} if model.failure else {}
    return {
        "id": model.name, "object": "model", "created": models.created_at, "owned_by": "slipstream",
        "aliases": list(model.names), "meta": meta(model), "status": {"value": model.state} | failed,
        "description": of.pair.description, "capabilities": abilities(of),
    }  # fmt: skip


def entries(models: ServedModels, model: ServedModel) -> list[tuple[Event, Event]]:
    """Return the bodies of ModelCard and ModelBrief for a model, then for each of its LoRA adapters under a name of its
    own.
    """
    card, brief = model_card(models, model), model_brief(model)
    found = [(card, brief)]
    for title in titles(model.adapters):
        names = [f"{name}:{title}" for name in model.names]
        own = {"name": names[0], "model": names[0]}
        found.append((card | {"id": names[0], "aliases": names, "parent": model.name}, brief | own))
    return found


def meta(model: ServedModel) -> Event | None:
    """Return the limits of a loaded model."""
    if (engine := model.engine) is None:
        return None
    facts = engine.facts
    return {
        "n_ctx": facts.n_ctx, "n_ctx_train": facts.n_ctx_train, "n_vocab": facts.n_vocab, "size": facts.n_bytes,
    }  # fmt: skip


async def list_models(models: ServedModels, request: Request) -> ASGIApp:
    """Answer with the body of ModelList, with `reload` after a new look for models. Raises ApiError while the only
    model is being loaded.
    """
    if request.query_params.get("reload"):
        await models.known.refresh(is_asked=True)
    known = models.listed
    found = await run_in_threadpool(lambda: [entry for each in known for entry in entries(models, each)])  # reads files
    return JSONBody({"object": "list", "data": [card for card, _ in found], "models": [brief for _, brief in found]})


async def one_model(models: ServedModels, request: Request) -> ASGIApp:
    """Answer with the body of ModelCard for the requested name. Raises ApiError if that is not served."""
    name = request.path_params["name"]
    model = required(models, name)
    known, title = ["", *map(usual, titles(model.adapters))], split_name(name)[1]
    found = await run_in_threadpool(entries, models, model)
    return JSONBody(found[known.index(title) if title in known else 0][0])


def required(models: ServedModels, name: str) -> ServedModel:
    """Return the model of that name. Raises ApiError if there is none."""
    if models.listed and (model := models.known.named(name)):
        return model
    raise models.known.unknown(name)


class ModelRequest(RequestModel):
    """The body of a request to load or unload a model."""

    model: Annotated[str, Field(min_length=1)]


class Done(BaseModel):
    """The body that answers it: the work has begun."""

    success: Literal[True]


async def load(models: ServedModels, request: Request) -> ASGIApp:
    """Begin to load a model, also one that could not be loaded before. Raises ApiError."""
    name = (await read_body(request, ModelRequest, CONTEXT)).model
    if models.only is None and not (model := await models.known.find(name)).is_loaded:
        model.failure = None
        models.begin(models.load(model))
    return JSONBody({"success": True})


async def unload(models: ServedModels, request: Request) -> ASGIApp:
    """Begin to unload a model, once no request uses it. Raises ApiError."""
    name = (await read_body(request, ModelRequest, CONTEXT)).model
    if models.only is not None:
        message = "This server has a single model, which stays. Start `slipstream serve` without a name for several."
        raise ApiError(400, message, "model")
    models.begin(models.unload(await models.known.find(name)))
    return JSONBody({"success": True})


ENDPOINT = Endpoint("/models", list_models, response=ModelList)
ONE = Endpoint("/models/{name:path}", one_model, response=ModelCard)
LOAD = Endpoint("/models/load", load, ModelRequest, Done)
UNLOAD = Endpoint("/models/unload", unload, ModelRequest, Done)
