"""The served model in OpenAI's list, with the fields that llama.cpp's clients read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, fact_endpoint
from app.server.errors import ApiError
from app.server.served import ServedEngine
from app.server.wire import Event, JSONBody


class ModelMeta(BaseModel):
    """A model's limits: tokens and bytes."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    size: int


class ModelStatus(BaseModel):
    """Whether the model can be used."""

    value: Literal["loaded"]


class ModelCard(BaseModel):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    meta: ModelMeta
    status: ModelStatus


class ModelList(BaseModel):
    """The body of /models."""

    object: Literal["list"]
    data: list[ModelCard]


def model_card(served: ServedEngine) -> Event:
    """Return the body of ModelCard for the loaded pair. Zed reads `meta.n_ctx` and `status.value`."""
    engine = served.engine
    meta = {
        "n_ctx": engine.facts.n_ctx,
        "n_ctx_train": engine.facts.n_ctx_train,
        "n_vocab": engine.facts.n_vocab,
        "size": engine.facts.n_bytes,
    }
    return {
        "id": engine.pair.name, "object": "model", "created": served.created_at, "owned_by": "slipstream",
        "aliases": list(served.policy.aliases), "meta": meta, "status": {"value": "loaded"},
        "description": engine.pair.description,
    }  # fmt: skip


def models(served: ServedEngine) -> Event:
    """Return the body of ModelList with the only model. Raises ApiError while it is being loaded."""
    return {"object": "list", "data": [model_card(served)]}


async def one_model(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the body of ModelCard for the requested name. Raises ApiError if that is not served."""
    card, name = model_card(served), request.path_params["name"]
    if name not in {card["id"], *served.policy.aliases}:
        raise ApiError(404, f"There is no model '{name}' here. Served: {card['id']}.", "model", "model_not_found")
    return JSONBody(card)


ENDPOINT = fact_endpoint("/models", ModelList, models)
ONE = Endpoint("/models/{name:path}", one_model, response=ModelCard)
