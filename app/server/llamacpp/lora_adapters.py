"""/lora-adapters: the LoRA adapters of a model, and their scales for requests that name none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, RootModel
from starlette.requests import Request
from starlette.types import ASGIApp

from app.server.endpoint import Endpoint, model_endpoint
from app.server.fields import read_body
from app.server.lora import AdapterScales, LoadedAdapter, checked, listed_adapters
from app.server.policy import Scales
from app.server.served import ServedEngine
from app.server.served_models import ServedModels
from app.server.wire import JSONBody

CONTEXT = 2**12  # tokens: more than a list of scales needs


class LoadedAdapterList(RootModel[list[LoadedAdapter]]):
    """The body that answers GET."""


class WantedScales(RootModel[AdapterScales]):
    """The body of POST. Adapters that it does not name get a scale of 0."""


class Applied(BaseModel):
    """The body that answers POST."""

    success: Literal[True]


async def show(served: ServedEngine, request: Request) -> ASGIApp:
    """Answer with the body of LoadedAdapterList."""
    found: list[Any] = [each.model_dump() for each in listed_adapters(served.engine.pair, served.policy)]
    return JSONBody(found)


async def set_scales(models: ServedModels, request: Request) -> ASGIApp:
    """Set the scales for later requests to the model that the query names, else the one used last. Raises ApiError."""
    body = await read_body(request, WantedScales, CONTEXT)
    if models.only is not None:
        apply(models.only, body)
        return JSONBody({"success": True})
    model = await models.known.find(request.query_params.get("model", ""))
    served = await models.hold(model)
    try:
        model.lora = apply(served, body)
    finally:
        model.release()
    return JSONBody({"success": True})


def apply(served: ServedEngine, body: WantedScales) -> Scales:
    """Set the scales and return them. Raises ApiError for an adapter that the model does not have."""
    scales = checked(body.root, served.engine.pair)
    served.policy = replace(served.policy, lora=scales)
    return scales


ENDPOINTS = (
    model_endpoint("/lora-adapters", show, response=LoadedAdapterList),
    Endpoint("/lora-adapters", set_scales, WantedScales, Applied),
)
