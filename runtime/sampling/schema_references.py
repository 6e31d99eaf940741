"""Finds references of a JSON schema that lead in a circle: no value fits them that ends. Knows JSON alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from runtime.sampling.schema import Schema, as_list, refs


def endless(schema: Schema) -> str:
    """Return a reference in the schema that no finite value fits; "" if there is none."""
    targets = {ref: pointed_at(ref, schema) for ref in sorted(refs(schema))}
    users = defaultdict[str, list[str]](list)
    for ref, target in targets.items():
        for inner in refs(target):
            users[inner].append(ref)
    ending, left = set[str](), list(targets)
    while left:
        ref = left.pop()
        if ref not in ending and ends(targets[ref], ending):
            ending.add(ref)
            left += users[ref]
    return next((ref for ref in targets if ref not in ending), "")


def ends(node: Any, ending: Collection[str]) -> bool:
    """Whether a finite value fits a schema, if one fits each of the `ending` references and none the others."""
    if not isinstance(node, dict):
        return True
    if isinstance(node.get("$ref"), str) and node["$ref"] not in ending:
        return False
    either = [parts for key in ("anyOf", "oneOf") if (parts := as_list(node.get(key)))]
    return all(ends(part, ending) for part in needed(node)) and all(
        any(ends(part, ending) for part in parts) for parts in either
    )


def needed(node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas inside one that every value has a part for: required keys, items that must be there."""
    yield from as_list(node.get("allOf"))
    properties, least = node.get("properties"), node.get("minItems")
    if node.get("type") in ("object", ["object"]) and isinstance(properties, dict):
        yield from (properties.get(key) for key in as_list(node.get("required")) if isinstance(key, str))
    if node.get("type") in ("array", ["array"]) and isinstance(least, int | float) and least > 0:
        first = as_list(node.get("prefixItems"))
        yield from first[: int(least)]
        yield node.get("items") if len(first) < least else None


def pointed_at(ref: str, schema: Schema) -> Any:
    """Return what a reference into the schema itself names; None if there is no such place."""
    elsewhere, _, place = ref.partition("#")
    found: Any = None if elsewhere else schema
    for name in place.split("/")[1:]:
        key = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(key)] if key.isdecimal() and len(key) < 9 and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found
