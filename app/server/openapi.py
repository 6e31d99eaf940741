"""The OpenAPI description of what is answered, made from the models that check requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.server.answers import ANSWERS, Error
from app.server.fields import Fields

Json = dict[str, object]
SCHEMAS = "#/components/schemas/"
STREAMING = {
    "/chat/completions",
    "/completions",
    "/responses",
    "/completion",
    "/infill",
}  # where `stream` can be asked for
EVENT: Json = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "contentMediaType": "application/json"}},
}
EVENTS: Json = {"text/event-stream": {"itemSchema": EVENT}}


def description(gets: Iterable[str], posts: Mapping[str, type[Fields]]) -> Json:
    """Of the endpoints: paths, what their bodies must be, and what they answer."""
    kinds: list[type[BaseModel]] = list(dict.fromkeys([*posts.values(), *ANSWERS.values(), Error]))
    _, models = models_json_schema([(kind, "validation") for kind in kinds], ref_template=SCHEMAS + "{model}")
    paths: dict[str, Json] = {path: {"get": operation(path)} for path in gets}
    for path, kind in posts.items():
        paths[path] = {"post": operation(path) | {"requestBody": {"required": True, "content": as_json(kind)}}}
    return {
        "openapi": "3.2.0",
        "info": {
            "title": "Slipstream",
            "version": version("slipstream"),
            "description": "OpenAI's and llama.cpp's interfaces to a local model.",
        },
        "paths": paths,
        "components": {"schemas": models["$defs"], "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def operation(path: str) -> Json:
    """What an endpoint answers, and how it refuses."""
    answers: Json = {
        "200": {"description": "The answer.", "content": content(path)},
        "default": {"description": "Why not.", "content": as_json(Error)},
    }
    return {"operationId": path.strip("/").replace("/", "_"), "responses": answers}


def content(path: str) -> Json:
    """The answer's types: JSON, events, or text."""
    if path in ANSWERS:
        return as_json(ANSWERS[path]) | (EVENTS if path in STREAMING else {})
    return EVENTS if path.endswith("/sse") else {"text/plain": {"schema": {"type": "string"}}}


def as_json(kind: type[BaseModel]) -> Json:
    """A body of that kind."""
    return {"application/json": {"schema": {"$ref": SCHEMAS + kind.__name__}}}
