"""Rewrites a JSON schema's limits on single values in a form that llguidance enforces, and lists the rest.

The library reads bounds as floats, and supports some formats only; by JSON Schema a format need not be enforced.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

from runtime.sampling.schema import Schema, nodes

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
