"""Bounds what a JSON schema costs before anything of it is compiled. Knows JSON; knows no tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from runtime.sampling.depth import deepest
from runtime.sampling.schema import DEFINITIONS, Schema, as_list, inner_schemas, nodes
from runtime.sampling.schema_values import number

MAX_KEYS = 2000  # keys that a schema may name: compiling 10,000 optional ones takes half a minute, and fails
MAX_PATTERNS = 100  # for keys, each of which is compared with all others: 500 take half a minute as well
LIMITS = {"properties": ("keys", MAX_KEYS), "patternProperties": ("patterns for keys", MAX_PATTERNS)}
MAX_DEPTH = 500  # schemas within each other; llguidance's recursion ends the process at some 2,000
MAX_TEXT = 10_000  # characters of a text that is given word for word: 100,000 take a quarter of a second at each token
MAX_REMAINDERS = 20_000  # of a number's multiples, each a state: 100,000 take 5 seconds


def n_keys(schema: Any, keyword: str = "properties") -> int:
    """Return the number of keys of objects that it names, or of patterns for keys."""
    maps = (node.get(keyword) for node in nodes(schema))
    return sum(len(each) for each in maps if isinstance(each, dict))


def excess(schema: Any) -> str:
    """Return which part is too large to be compiled in about a second; "" if none is."""
    for keyword, (what, most) in LIMITS.items():
        if (n := n_keys(schema, keyword)) > most:
            return f"names {n} {what}, and more than {most} take too long to prepare"
    if deepest(schema, lambda node: following(node, schema), id) > MAX_DEPTH:
        return f"nests more than {MAX_DEPTH} schemas"
    if (n := longest_text(schema)) > MAX_TEXT:
        return f"has a text of {n} characters in an enum or const, and more than {MAX_TEXT} take too long at each token"
    has_steps = any("multipleOf" in node for node in nodes(schema))
    if has_steps and any(n_remainders(node, schema) > MAX_REMAINDERS for node in nodes(schema)):
        return f"has multipleOf with a common multiple above {MAX_REMAINDERS}, which takes too long to prepare"
    return ""


def longest_text(schema: Any) -> int:
    """Return the number of characters of the longest value of an `enum` or `const`."""
    values = ((node.get("const"), *as_list(node.get("enum"))) for node in nodes(schema))
    return max((len(str(value)) for each in values for value in each), default=0)


def following(node: Any, root: Schema) -> Iterator[Any]:
    """Yield the schemas in a schema, and the definition that it refers to."""
    if isinstance(node, dict):
        yield from inner_schemas(node)
        yield from referred(node, root)


def referred(node: Schema, root: Schema) -> Iterator[Any]:
    """Yield the definition that a schema refers to, if it is one of the root's own."""
    ref = node.get("$ref")
    for key in DEFINITIONS:
        if isinstance(ref, str) and ref.startswith(f"#/{key}/") and isinstance(root.get(key), dict):
            yield root[key].get(ref.removeprefix(f"#/{key}/"))


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
        waiting += referred(each, root)
    unit = min((int(step.as_tuple().exponent) for step in found), default=0)
    return math.lcm(*(int(step.scaleb(-unit)) for step in found))
