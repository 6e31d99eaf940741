"""Prepares JSON schemas as constraints: closes objects that do not mention further keys, finds unsupported keywords,
and rewrites limits on single values in a form that llguidance enforces.

The library reads bounds as floats, and supports some formats only; by JSON Schema a format need not be enforced. Knows
JSON and llguidance's support of schemas; knows no tokens.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]
DEFINITIONS = ("$defs", "definitions")
MAPS = ("properties", "patternProperties", *DEFINITIONS)  # keywords whose values map names to schemas
LISTS = ("prefixItems", "items", "anyOf", "oneOf", "allOf")
SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
ALSO = ("allOf", "anyOf", "oneOf", "$ref", "patternProperties")  # these may name keys in addition to `properties`


def closed(schema: Schema) -> Schema:
    """Return the schema with unnamed keys forbidden, wherever it does not specify whether they are allowed.

    An object whose keys are named in several places, as with `allOf`, stays open: each place would forbid the others'
    keys.
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
    """Whether an object's schema names all its keys, and nothing in it allows others."""
    named = node.get("properties")
    if not isinstance(named, dict) or "additionalProperties" in node or any(key in node for key in ALSO):
        return False
    return all(name in named for name in as_list(node.get("required")) if isinstance(name, str))


def joined(node: Schema) -> list[Any]:
    """Return the parts of a schema that apply to the same value together."""
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in as_list(node.get(key))]
    alternatives_alone = "allOf" not in node and sum(key in node for key in ("anyOf", "oneOf")) == 1
    if "properties" not in node and (alternatives_alone or len(parts) == 1):
        parts = []
    return [*parts, {"$ref": node["$ref"]}] if "$ref" in node and "properties" in node else parts


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and [] for anything else."""
    return value if isinstance(value, list) else []


def nodes(schema: Any) -> Iterator[Schema]:
    """Yield every schema in a schema: definitions first, as others refer to them, and inner ones before outer ones."""
    if isinstance(schema, dict):
        for each in inner_schemas(schema):
            yield from nodes(each)
        yield schema


def inner_schemas(schema: Schema) -> Iterator[Any]:
    """Yield what stands directly in a schema in the place of another one."""
    for key, value in sorted(schema.items(), key=lambda item: item[0] not in DEFINITIONS):
        if key in MAPS and isinstance(value, dict):
            yield from value.values()
        else:
            yield from as_list(value) if key in LISTS else ()
            yield from [value] if key in SINGLE else ()


def refs(schema: Any) -> set[str]:
    """Return the references in a schema."""
    return {node["$ref"] for node in nodes(schema) if isinstance(node.get("$ref"), str)}


def resolved(ref: str, root: Mapping[str, Any]) -> Any:
    """Return the definition that a reference names, or None if it is not one of the schema's own."""
    for key in DEFINITIONS:
        if ref.startswith(f"#/{key}/") and isinstance(root.get(key), dict):
            return root[key].get(ref.removeprefix(f"#/{key}/"))
    return None


def is_usable(schema: Schema, lenient: bool = False) -> bool:
    """Whether a reply can be constrained to it. If `lenient`, unknown keywords may be left out."""
    from llguidance import LLMatcher

    try:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"lenient": lenient})
    except ValueError:  # numbers that Python reads but JSON does not have
        return False
    return not LLMatcher.validate_grammar_with_warnings(grammar)[0]


def supported(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a schema without unsupported keywords as JSON, and those. Each is left out only where it is not
    supported. May take long; see checking.py.
    """
    schema, found = json.loads(text), dict[str, None]()
    for has_refs in (False, True):  # what a reference leads to is mended first
        if is_usable(schema):
            break
        for node in list(nodes(schema)):
            if has_refs or not refs(node):
                found |= dict.fromkeys(left_out(node, schema))
    return json.dumps(schema), tuple(found)


def left_out(node: Schema, schema: Schema) -> list[str]:
    """Leave unsupported keywords out of a node of a schema, and return them."""
    found = list[str]()
    while node and not is_usable(whole(node, schema)):
        keyword = next((key for key in node if is_usable(whole(without(node, key), schema))), next(iter(node)))
        found.append(keyword)
        del node[keyword]
    return found


def without(node: Schema, key: str) -> Schema:
    """Return the schema without a keyword."""
    return {name: value for name, value in node.items() if name != key}


def whole(node: Schema, schema: Mapping[str, Any]) -> Schema:
    """Return an inner schema with the definitions that it may refer to."""
    return {key: schema[key] for key in DEFINITIONS if key in schema} | node


KNOWN_FORMATS = {
    "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown",
}  # fmt: skip
SIZED = re.compile(r"(u?)int(8|16|32|64)")  # formats that are bounds
MAX_INTEGER = 2**53 - 1  # bound of an unbounded integer: a model may write digits without end
BOUNDS = "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"
PAIRS = (
    ("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"),
)  # fmt: skip


def enforceable(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Return a copy with enforceable bounds and without unenforceable keywords, and the keywords that were left out."""
    found, left_out = json.loads(json.dumps(schema)), list[str]()
    for node in list(nodes(found)):
        kinds = node["type"] if isinstance(node.get("type"), list) else [node.get("type")]
        is_whole = "integer" in kinds and "number" not in kinds and not {"enum", "const", "multipleOf"} & node.keys()
        if is_whole and all(number(node[key]) is not None for key in BOUNDS if key in node):
            bound_integer(node)
        kind = node.get("format")
        if isinstance(kind, str) and kind not in KNOWN_FORMATS:
            left_out += [] if SIZED.fullmatch(kind) and kinds == ["integer"] else [f"format {kind:.32}"]
            del node["format"]
        if node.pop("uniqueItems", False) and node.get("maxItems") != 1:
            left_out.append("uniqueItems")
    return found, tuple(dict.fromkeys(left_out))


def contradiction(schema: Schema) -> str:
    """Return the lower limit of a value that exceeds its upper one, as a clause; "" if there is none."""
    for node in nodes(schema):
        for low, high in PAIRS:
            least, most = number(node.get(low)), number(node.get(high))
            if least is not None and most is not None and least > most:
                return f"{low} {least} is over {high} {most}"
    return ""


def number(value: Any) -> int | float | None:
    """Return a number within the range of a float; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) <= sys.float_info.max else None


def bound_integer(node: Schema) -> None:
    """Give an integer's schema two bounds, each the next float inside it.

    Above 2**53 this excludes a few valid values, and allows no invalid ones.
    """
    low, high = whole_bounds(node)
    node.pop("exclusiveMinimum", None)
    node.pop("exclusiveMaximum", None)
    node |= {"minimum": inner(low, math.inf), "maximum": inner(high, -math.inf)}


def whole_bounds(node: Schema) -> tuple[int, int]:
    """Return the smallest and the largest integer of a schema; a missing bound is set where floats are exact."""
    lows = [math.ceil(x) for x in (number(node.get("minimum")),) if x is not None]
    lows += [math.floor(x) + 1 for x in (number(node.get("exclusiveMinimum")),) if x is not None]
    highs = [math.floor(x) for x in (number(node.get("maximum")),) if x is not None]
    highs += [math.ceil(x) - 1 for x in (number(node.get("exclusiveMaximum")),) if x is not None]
    if sized := SIZED.fullmatch(str(node.get("format"))):
        bits = int(sized[2])
        lows.append(0 if sized[1] else -(2 ** (bits - 1)))
        highs.append(2 ** (bits if sized[1] else bits - 1) - 1)
    low, high = max(lows, default=None), min(highs, default=None)
    if low is None:
        low = -MAX_INTEGER if high is None else min(-MAX_INTEGER, high - MAX_INTEGER)
    return low, max(MAX_INTEGER, low + MAX_INTEGER) if high is None else high


def inner(bound: int, towards: float) -> int:
    """Return the integer nearest to a bound that a float can represent, on the side `towards` which values lie."""
    near = float(bound)
    is_outside = near < bound if towards > 0 else near > bound
    return int(math.nextafter(near, towards) if is_outside else near)
