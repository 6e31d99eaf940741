"""JSON schemas as constraints: closed where they are silent about further keys, and what of one cannot be enforced.

Knows JSON and what llguidance understands of schemas; knows no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

Schema = dict[str, Any]
DEFINITIONS = ("$defs", "definitions")
MAPS = ("properties", "patternProperties", *DEFINITIONS)  # keywords whose values are schemas by name
LISTS = ("prefixItems", "items", "anyOf", "oneOf", "allOf")
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
ALSO = ("allOf", "anyOf", "oneOf", "$ref", "patternProperties")  # may name keys besides `properties`
MOST_KEYS = 2000  # that a schema may name: preparing 10,000 optional ones takes half a minute, and fails
MOST_PATTERNS = 100  # for keys, each of which is set against all others: 500 take half a minute as well
LIMITS = {"properties": ("keys", MOST_KEYS), "patternProperties": ("patterns for keys", MOST_PATTERNS)}
MOST = 8  # keywords that are named of a schema with more faults


def closed(schema: Schema) -> Schema:
    """The schema without keys that it does not name, wherever it does not say whether others may come.

    An object whose keys are said in several places, as with `allOf`, stays open: each place would forbid the others'.
    """
    open_refs = {ref for node in nodes(schema) for part in joined(node) for ref in refs(part)}
    found: Schema = _closed(schema, open_refs)
    return found


def _closed(node: Any, open_refs: set[str]) -> Any:
    if not isinstance(node, dict):
        return node
    found, is_joined = dict(node), bool(joined(node))
    for key in {*MAPS, *LISTS, *SINGLE} & node.keys():
        value = node[key]
        if key in MAPS and isinstance(value, dict):
            found[key] = {
                name: each if f"#/{key}/{name}" in open_refs else _closed(each, open_refs)
                for name, each in value.items()
            }
        elif key in LISTS and isinstance(value, list) and not (is_joined and key in ALSO):
            found[key] = [_closed(each, open_refs) for each in value]
        elif key in ("items", "additionalProperties"):
            found[key] = _closed(value, open_refs)
    return found | {"additionalProperties": False} if names_all_keys(node) else found


def names_all_keys(node: Schema) -> bool:
    """Does an object's schema name keys, and nothing in it speaks of others?"""
    named = node.get("properties")
    if not isinstance(named, dict) or "additionalProperties" in node or any(key in node for key in ALSO):
        return False
    return all(name in named for name in as_list(node.get("required")) if isinstance(name, str))


def joined(node: Schema) -> list[Any]:
    """The parts of a schema that speak of the same value together with others."""
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in as_list(node.get(key))]
    alternatives_alone = "allOf" not in node and sum(key in node for key in ("anyOf", "oneOf")) == 1
    if "properties" not in node and (alternatives_alone or len(parts) == 1):
        parts = []
    return [*parts, {"$ref": node["$ref"]}] if "$ref" in node and "properties" in node else parts


def as_list(value: Any) -> list[Any]:
    """A list as it is; nothing else is one."""
    return value if isinstance(value, list) else []


def nodes(schema: Any) -> Iterator[Schema]:
    """Every schema in a schema: definitions first, which others refer to, and the inner before the outer."""
    if not isinstance(schema, dict):
        return
    for key, value in sorted(schema.items(), key=lambda item: item[0] not in DEFINITIONS):
        if key in MAPS and isinstance(value, dict):
            inner = list(value.values())
        else:
            inner = [*(as_list(value) if key in LISTS else ()), *([value] if key in SINGLE else ())]
        for each in inner:
            yield from nodes(each)
    yield schema


def n_keys(schema: Any, keyword: str = "properties") -> int:
    """How many keys of objects it names, or patterns for such."""
    maps = (node.get(keyword) for node in nodes(schema))
    return sum(len(each) for each in maps if isinstance(each, dict))


def excess(schema: Any) -> str:
    """What it has too much of to be prepared in a second or so; "" where it has not."""
    for keyword, (what, most) in LIMITS.items():
        if (n := n_keys(schema, keyword)) > most:
            return f"names {n} {what}, and more than {most} take too long to prepare"
    return ""


def refs(schema: Any) -> set[str]:
    """What a schema refers to."""
    return {node["$ref"] for node in nodes(schema) if isinstance(node.get("$ref"), str)}


def is_usable(schema: Schema, lenient: bool = False) -> bool:
    """Can a reply be bound to it? Where `lenient`, keywords that are merely unknown may be left out."""
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"lenient": lenient})
    except ValueError:  # numbers that Python reads, and JSON has not
        return False
    return not LLMatcher.validate_grammar_with_warnings(grammar)[0]


def unsupported(schema: Schema) -> tuple[str, ...]:
    """The keywords that a reply cannot be bound to, as far as they can be told; none where it can be bound to all."""
    return _unsupported(json.dumps(schema))


@lru_cache(maxsize=256)
def _unsupported(text: str) -> tuple[str, ...]:
    schema, found = json.loads(text), list[str]()
    while len(found) < MOST and not is_usable(schema):
        node = next((node for node in nodes(schema) if not is_usable(whole(node, schema))), schema)
        keyword = next((key for key in node if is_usable(whole(without(node, key), schema))), next(iter(node), ""))
        found.append(keyword)
        if node.pop(keyword, None) is None:
            break
    return tuple(dict.fromkeys(found))


def without(node: Schema, key: str) -> Schema:
    """The schema but for a keyword."""
    return {name: value for name, value in node.items() if name != key}


def whole(node: Schema, schema: Mapping[str, Any]) -> Schema:
    """An inner schema with the definitions that it may refer to."""
    return {key: schema[key] for key in DEFINITIONS if key in schema} | node
