"""The OpenAPI description of what is answered, made from the models that check requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version

from pydantic.json_schema import models_json_schema

from app.server.fields import Fields

Json = dict[str, object]
SCHEMAS = "#/components/schemas/"
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def description(gets: Iterable[str], posts: Mapping[str, type[Fields]]) -> Json:
    """Of the endpoints: paths, and for some what their bodies must be."""
    _, models = models_json_schema([(kind, "validation") for kind in dict.fromkeys(posts.values())], ref_template=SCHEMAS + "{model}")
    paths: dict[str, Json] = {path: {"get": operation(path)} for path in gets}
    for path, kind in posts.items():
        paths[path] = {"post": operation(path) | {"requestBody": {"required": True, "content": as_json({"$ref": SCHEMAS + kind.__name__})}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Slipstream", "version": version("slipstream"), "description": "OpenAI's and llama.cpp's interfaces to a local model."},
        "paths": paths,
        "components": {"schemas": models["$defs"] | {"Error": ERROR}, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def operation(path: str) -> Json:
    """What any endpoint answers."""
    answers: Json = {"200": {"description": "The answer."}, "default": {"description": "Why not.", "content": as_json({"$ref": SCHEMAS + "Error"})}}
    return {"operationId": path.strip("/").replace("/", "_"), "responses": answers}


def as_json(schema: Json) -> Json:
    """A body of that schema."""
    return {"application/json": {"schema": schema}}
