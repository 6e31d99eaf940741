"""Bounds what a grammar or a JSON schema costs before anything of it is compiled, and finds references of a schema that
lead in a circle: no value fits them that ends. Knows JSON; knows no tokens.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeVar
from urllib.parse import unquote

from runtime.sampling.schema import Schema, as_list, inner_schemas, nodes, number, refs, resolved

MAX_KEYS = 2000  # keys that a schema may name: compiling 10,000 optional ones takes half a minute, and fails
MAX_PATTERNS = 100  # for keys, each of which is compared with all others: 500 take half a minute as well
LIMITS = {"properties": ("keys", MAX_KEYS), "patternProperties": ("patterns for keys", MAX_PATTERNS)}
MAX_DEPTH = 500  # schemas within each other; llguidance's recursion ends the process at some 2,000
MAX_TEXT = 10_000  # characters of a text that is given word for word: 100,000 take a quarter of a second at each token
MAX_REPEATS = 100_000  # of one part of a pattern: ten times as many are more than the library follows
MAX_REMAINDERS = 20_000  # of a number's multiples, each a state: 100,000 take 5 seconds

# Of a regular expression: escapes and classes, repetitions, and single characters
PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)


def n_keys(schema: Any, keyword: str = "properties") -> int:
    """Return the number of keys of objects that it names, or of patterns for keys."""
    maps = (node.get(keyword) for node in nodes(schema))
    return sum(len(each) for each in maps if isinstance(each, dict))


def excess(schema: Any) -> str:
    """Return which part is too large to be compiled in about a second; "" if none is."""
    if size := oversize(schema):
        return size
    if (n := max(map(longest_value, nodes(schema)), default=0)) > MAX_TEXT:
        return f"has a text of {n} characters in an enum or const, and more than {MAX_TEXT} take too long at each token"
    if (n := max(map(n_repeats, nodes(schema)), default=0)) > MAX_REPEATS:
        return f"has a pattern that repeats a part {n} times, and more than {MAX_REPEATS} are too many to follow"
    if any(with_many_remainders(schema)):
        return f"has multipleOf with a common multiple above {MAX_REMAINDERS}, which takes too long to prepare"
    return ""


def oversize(schema: Any) -> str:
    """Return of what it has too many parts or levels; "" if of none."""
    for keyword, (what, most) in LIMITS.items():
        if (n := n_keys(schema, keyword)) > most:
            return f"names {n} {what}, and more than {most} take too long to prepare"
    if deepest(schema, lambda node: following(node, schema), id) > MAX_DEPTH:
        return f"nests more than {MAX_DEPTH} schemas"
    return ""


def longest_value(node: Schema) -> int:
    """Return the number of characters of the longest value of a node's own `enum` or `const`."""
    return max(len(str(value)) for value in (node.get("const"), *as_list(node.get("enum"))))


def n_repeats(node: Schema) -> int:
    """Return how often a part of a node's own `pattern` may be repeated, those around it counted: 6 of (a{2}){3}."""
    most, last = [1], 1  # of each open group, and of the part before
    for piece in PIECES.findall(str(node.get("pattern", ""))):
        if piece == "(":
            most.append(1)
        elif piece == ")" and len(most) > 1:
            last = most.pop()
        elif number_of_times := re.fullmatch(r"\{(\d{0,9}),?(\d{0,9})\}", piece):
            last *= int(number_of_times[2] or number_of_times[1] or 1)
        else:
            last = 1
        most[-1] = max(most[-1], last)
    return max(most)


def without_excess(schema: Schema) -> list[str]:
    """Leave out of a schema what takes too long or has no end, where it stands, and return the keywords: multiples,
    patterns, values that are given word for word, references in a circle.
    """
    found = list[str]()
    for node in with_many_remainders(schema):
        for inner in nodes(node):
            inner.pop("multipleOf", None)
        found.append("multipleOf")
    for node in list(nodes(schema)):
        too_long = ["pattern"] * (n_repeats(node) > MAX_REPEATS) + ["enum", "const"] * (longest_value(node) > MAX_TEXT)
        found += [key for key in too_long if node.pop(key, None) is not None]
    circles = set(endless(schema))
    for node in nodes(schema):
        if node.get("$ref") in circles:
            found.append(f"$ref {node.pop('$ref'):.32}")
    return found


def following(node: Any, root: Schema) -> Iterator[Any]:
    """Yield the schemas in a schema, and the definition that it refers to."""
    if isinstance(node, dict):
        yield from inner_schemas(node)
        yield from [resolved(str(node["$ref"]), root)] if "$ref" in node else ()


def with_many_remainders(schema: Any) -> Iterator[Schema]:
    """Yield the schemas in a schema, inner ones first, whose values must be multiples of so much that following them
    takes too long.
    """
    if any("multipleOf" in node for node in nodes(schema)):
        yield from (node for node in nodes(schema) if n_remainders(node, schema) > MAX_REMAINDERS)


def n_remainders(node: Schema, root: Schema) -> int:
    """Return the least common multiple of what a value must be multiples of, in units of its last digit."""
    found, waiting, seen = list[Decimal](), [node], set[int]()
    while waiting:
        each = waiting.pop()
        if not isinstance(each, dict) or id(each) in seen:
            continue
        seen.add(id(each))
        if step := number(each.get("multipleOf")):
            found.append(abs(Decimal(str(step)).normalize()))
        waiting += [part for key in ("allOf", "anyOf", "oneOf") for part in as_list(each.get(key))]
        waiting.append(resolved(str(each.get("$ref")), root))
    unit = min((int(step.as_tuple().exponent) for step in found), default=0)
    return math.lcm(*(int(step.scaleb(-unit)) for step in found))


def endless(schema: Schema) -> list[str]:
    """Return the references in the schema that no finite value fits."""
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
    return [ref for ref in targets if ref not in ending]


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
    found: Any = None if elsewhere or not (place == "" or place.startswith("/")) else schema  # others are anchors
    for name in place.split("/")[1:]:
        key = unquote(name).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(key)] if key.isdecimal() and len(key) < 9 and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found


T = TypeVar("T")


def deepest(root: T, following: Callable[[T], Iterable[T]], key: Callable[[T], Hashable]) -> int:
    """Return the length of the longest path of a depth-first search, which is how deep a recursion would be. Each thing
    is entered once, by its key.
    """
    path, seen, most = [iter(following(root))], {key(root)}, 1
    while path:
        each = next((each for each in path[-1] if key(each) not in seen), None)
        if each is None:
            path.pop()
            continue
        seen.add(key(each))
        path.append(iter(following(each)))
        most = max(most, len(path))
    return most
