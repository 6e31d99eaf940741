"""The OpenAPI document of the endpoints, generated from the models of their bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.server.endpoint import Endpoint
from app.server.wire import SSE

Json = dict[str, object]
SCHEMAS = "#/components/schemas/"
KEYS: Json = {
    "key": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
EVENT: Json = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "contentMediaType": "application/json"}},
}


def description(endpoints: Sequence[Endpoint]) -> Json:
    """Return the document. Each path is listed once, though all are also answered under /v1."""
    bodies = [body for each in endpoints for body in (each.request, each.response, each.refusal) if body]
    _, schemas = models_json_schema(
        [(body, "validation") for body in dict.fromkeys(bodies)], ref_template=SCHEMAS + "{model}"
    )
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Slipstream",
            "version": version("slipstream"),
            "description": "OpenAI's, Anthropic's, llama.cpp's and Ollama's interfaces to a local model.",
        },
        "paths": {spelled(each.path): {"post" if each.request else "get": operation(each)} for each in endpoints},
        "components": {"schemas": schemas["$defs"], "securitySchemes": KEYS},
        "security": [{}, *({name: []} for name in KEYS)],
    }


def spelled(path: str) -> str:
    """Return a path without the types of its parameters."""
    return re.sub(r":\w+}", "}", path)


def operation(endpoint: Endpoint) -> Json:
    """Return the description of an endpoint's request, responses and errors."""
    responses: Json = {
        "200": {"description": "The response.", "content": content(endpoint)},
        "default": {"description": "An error.", "content": as_json(endpoint.refusal)},
    }
    found: Json = {"operationId": "_".join(re.findall(r"\w+", spelled(endpoint.path))), "responses": responses}
    if names := re.findall(r"{(\w+)}", spelled(endpoint.path)):
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if endpoint.request:
        found["requestBody"] = {"required": True, "content": as_json(endpoint.request)}
    return found


def content(endpoint: Endpoint) -> Json:
    """Return the answer's media types: JSON, events, or text."""
    found = as_json(endpoint.response) if endpoint.response else {}
    if endpoint.streams:
        found[endpoint.streams.media_type] = {"itemSchema": EVENT if endpoint.streams is SSE else {"type": "object"}}
    return found or {"text/plain": {"schema": {"type": "string"}}}


def as_json(body: type[BaseModel]) -> Json:
    """Return the media type of a JSON body with that model."""
    return {"application/json": {"schema": {"$ref": SCHEMAS + body.__name__}}}
