"""The schema of a tool's arguments as far as a reply can be bound to it, and a warning that names the rest."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from runtime.engine.calls.form import TYPES
from runtime.sampling.schema import DEFINITIONS, closed, excess, is_usable, unsupported

log = logging.getLogger(__name__)
Schema = dict[str, Any]
ANY_OBJECT: Schema = {"type": "object"}
DEEPEST = 8  # references followed one after the other


@lru_cache(maxsize=256)
def bound_schema(tool: str, text: str) -> str:
    """Return the part of a schema of arguments that can be enforced, as JSON; any object where it is too large.

    What is left out is logged, once.
    """
    schema = json.loads(text)
    if too_much := excess(schema):
        log.warning(f"Tool '{tool}': its schema {too_much}, so any arguments may come. Leave some out.")
        return json.dumps(ANY_OBJECT)
    if keywords := unsupported(schema):
        is_bound = is_usable(schema, lenient=True)
        log.warning(unenforced(tool, keywords, is_bound))
        schema = schema if is_bound else ANY_OBJECT
    return json.dumps(closed(schema))


def unenforced(tool: str, keywords: Iterable[str], is_bound: bool) -> str:
    """Return the sentence about keywords of a tool's schema that cannot be enforced."""
    named = " and ".join(f"'{keyword}'" for keyword in keywords)
    result = "calls are held to the rest of the schema only" if is_bound else "any arguments may come"
    return f"Tool '{tool}': {named} cannot be enforced, so {result}. Leave that out of its parameters."


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the JSON types that values of a schema may have, integers as numbers; all where it does not say."""
    found = _types(schema, root, DEEPEST)
    return tuple(kind for kind in TYPES if kind in found) or TYPES


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, dict) or not depth:
        return set()
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return {"number" if name == "integer" else name for name in named if isinstance(name, str)}
    if "const" in schema or isinstance(schema.get("enum"), list):
        return {type_of(value) for value in schema.get("enum", [schema.get("const")])}
    if isinstance(schema.get("$ref"), str):
        return _types(resolved(schema["$ref"], root), root, depth - 1)
    parts = [part for key in ("anyOf", "oneOf") for part in schema.get(key, ()) if isinstance(schema[key], list)]
    each = [_types(part, root, depth - 1) for part in parts]
    return set().union(*each) if all(each) else set()


def resolved(ref: str, root: Mapping[str, Any]) -> Any:
    """Return the definition that a reference names; None where it is none of the schema's own."""
    for key in DEFINITIONS:
        if ref.startswith(f"#/{key}/") and isinstance(root.get(key), dict):
            return root[key].get(ref.removeprefix(f"#/{key}/"))
    return None


def type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds = {str: "string", int: "number", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "object")


def texts_of(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return the texts that a value must be one of; none where any will do."""
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        schema = resolved(schema["$ref"], root)
    if not isinstance(schema, dict):
        return []
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
