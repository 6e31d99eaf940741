"""Describes functions that a model may call, reduces the schemas of their arguments to the enforceable part, and logs a
warning that names the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runtime.conversation.calls.form import TYPES
from runtime.core.watched import LimitError
from runtime.sampling.bounds import oversize, without_excess
from runtime.sampling.checking import supported
from runtime.sampling.schema import DEFINITIONS, as_list, closed, enforceable, resolved

log = logging.getLogger(__name__)
Schema = dict[str, Any]
ANY_OBJECT: Schema = {"type": "object"}
# Keywords that are enforced for values, and not for all arguments where they are written one by one
NOT_FOR_ARGUMENTS = ("anyOf", "oneOf", "patternProperties", "minProperties", "maxProperties")
MAX_NAMED = 8  # keywords named in a warning, at most
DEEPEST = 8  # references followed in sequence, at most


@lru_cache(maxsize=256)
def bound_schema(tool: str, text: str) -> str:
    """Return the enforceable part of a schema of arguments, as JSON; any object if it has too many parts.

    Keywords that are left out are logged once.
    """
    schema = json.loads(text)
    if too_much := oversize(schema):
        log.warning(f"Tool '{tool}': its schema {too_much}, so any arguments are accepted. Leave some out.")
        return json.dumps(ANY_OBJECT)
    if costly := without_excess(schema):
        schema.setdefault("type", "object")
    schema, left_out = enforceable(schema)
    try:
        schema, keywords = supported(schema)
    except LimitError as error:
        log.warning(
            f"Tool '{tool}': its schema cannot be compiled: {error}. So any arguments are accepted. Simplify it."
        )
        return json.dumps(ANY_OBJECT)
    if keywords := tuple(dict.fromkeys((*costly, *left_out, *keywords))):
        log.warning(unenforced(tool, keywords))
    return json.dumps(closed(schema))


def unenforced(tool: str, keywords: Sequence[str]) -> str:
    """Return the warning about keywords of a tool's schema that cannot be enforced."""
    named = " and ".join(f"'{keyword}'" for keyword in keywords[:MAX_NAMED]) + " and more" * (len(keywords) > MAX_NAMED)
    return (
        f"Tool '{tool}': {named} cannot be enforced, so only the rest of the schema is enforced. Leave that out of its "
        "parameters."
    )


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types of a schema's values, with integers as numbers; all types if it restricts none."""
    found = _types(schema, root, DEEPEST)
    return tuple(kind for kind in TYPES if kind in found) or TYPES


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, dict) or not depth:
        return set()
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {"number" if name == "integer" else name for name in named if isinstance(name, str)}
    if (values := listed(schema)) is not None:
        return {type_of(value) for value in values}
    if isinstance(schema.get("$ref"), str):
        return _types(resolved(schema["$ref"], root), root, depth - 1)
    either, every = parts_of(schema, "anyOf", "oneOf"), parts_of(schema, "allOf")
    if every:
        return next(filter(None, (_types(part, root, depth - 1) for part in every)), set())
    each = [_types(part, root, depth - 1) for part in either]
    return set().union(*each) if all(each) else set()


def listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that a schema lists, or None if it lists none."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


def parts_of(schema: Mapping[str, Any], *keys: str) -> list[Any]:
    """Return the schemas in the lists under these keys."""
    return [part for key in keys for part in as_list(schema.get(key))]


def rooted(schema: Schema) -> Schema:
    """Return the schema, or the one that it refers to, with its definitions, if it is nothing but a reference."""
    target = resolved(schema["$ref"], schema) if isinstance(schema.get("$ref"), str) else None
    return {key: schema[key] for key in DEFINITIONS if key in schema} | target if isinstance(target, dict) else schema


def merged(schema: Schema) -> Schema:
    """Return the schema of an object with what the parts of its `allOf` say about keys, and with both lists of keys."""
    found = {key: value for key, value in schema.items() if key != "allOf"}
    properties = dict(schema["properties"]) if isinstance(schema.get("properties"), dict) else {}
    required = [key for key in as_list(schema.get("required")) if isinstance(key, str)]
    for part in as_list(schema.get("allOf")):
        target = resolved(part["$ref"], schema) if isinstance(part, dict) and "$ref" in part else part
        if isinstance(target, dict):
            inner = merged({key: schema[key] for key in DEFINITIONS if key in schema} | target)
            properties |= inner["properties"]
            required += inner["required"]
    properties = properties | {key: {} for key in required if key not in properties}
    return found | {"properties": properties, "required": required}


def type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "object")


def texts_of(schema: Any, root: Mapping[str, Any], depth: int = DEEPEST) -> list[str]:
    """Return the texts that a value must be one of, or none if any text is allowed."""
    if not isinstance(schema, dict) or not depth:
        return []
    if isinstance(schema.get("$ref"), str):
        return texts_of(resolved(schema["$ref"], root), root, depth - 1)
    if (values := listed(schema)) is not None:
        return [value for value in values if isinstance(value, str)]
    for part in parts_of(schema, "allOf"):
        if found := texts_of(part, root, depth - 1):
            return found
    each = [
        texts_of(part, root, depth - 1)
        for part in parts_of(schema, "anyOf", "oneOf")
        if "string" in types_of(part, root)
    ]
    return [text for texts in each for text in texts] if all(each) else []


def narrowed(schema: Schema, kinds: Sequence[str], root: Mapping[str, Any]) -> Schema:
    """Return a schema without the values of other types than these."""
    if isinstance(schema.get("enum"), list):
        return schema | {"enum": [value for value in schema["enum"] if type_of(value) in kinds]}
    for key in ("anyOf", "oneOf"):
        if parts := parts_of(schema, key):
            kept = [part for part in parts if set(types_of(part, root)) <= set(kinds)]
            return schema | {key: kept} if kept else {"type": list(kinds)}
    if isinstance(schema.get("type"), list):
        names = [name for name in schema["type"] if ("number" if name == "integer" else name) in kinds]
        return schema | {"type": names}
    return schema if set(types_of(schema, root)) <= set(kinds) else {"type": list(kinds)}


@dataclass(frozen=True, slots=True)
class Function:
    """A function that may be called, and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The part of the schema that a reply can be constrained to."""
        found: dict[str, Any] = json.loads(bound_schema(self.name, json.dumps(self.parameters or ANY_OBJECT)))
        return found
