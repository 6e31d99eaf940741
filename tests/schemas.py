"""Values that fit a JSON schema, and values that nearly do, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.text(max_size=12)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ODDLY = 0.07  # how often a value is any value


def of_schema(schema: dict[str, Any], defs: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Mostly what the schema allows."""
    right = _of(schema, defs)
    return st.floats(0, 1).flatmap(lambda chance: ANYTHING if chance > 1 - ODDLY else right)


def _of(schema: dict[str, Any], defs: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return st.deferred(lambda: of_schema(defs[schema["$ref"].rsplit("/", 1)[1]], defs))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return st.one_of(*(_of(option, defs) for option in options))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    return _of_type(schema, defs)


def _of_type(schema: dict[str, Any], defs: dict[str, Any]) -> st.SearchStrategy[Any]:
    kinds = {
        "string": lambda: st.from_regex(schema["pattern"], fullmatch=True) if "pattern" in schema else TEXT,
        "integer": lambda: st.integers(schema.get("minimum", -9), schema.get("minimum", -9) + 99),
        "number": lambda: st.floats(-2, 2, width=32),
        "boolean": st.booleans,
        "null": st.none,
        "array": lambda: _of_array(schema, defs),
        "object": lambda: _of_object(schema, defs),
    }
    return kinds.get(schema.get("type", ""), lambda: ANYTHING)()


def _of_array(schema: dict[str, Any], defs: dict[str, Any]) -> st.SearchStrategy[Any]:
    if items := schema.get("prefixItems"):
        return st.tuples(*(of_schema(item, defs) for item in items)).map(list)
    return st.lists(of_schema(schema.get("items", {}), defs), min_size=schema.get("minItems", 0), max_size=3)


def _of_object(schema: dict[str, Any], defs: dict[str, Any]) -> st.SearchStrategy[Any]:
    fields, required = schema.get("properties", {}), set(schema.get("required", ()))
    if not fields:
        extra = schema.get("additionalProperties")
        return st.dictionaries(TEXT | st.integers(0, 600).map(str), of_schema(extra if isinstance(extra, dict) else {}, defs), max_size=3)
    always = {name: of_schema(field, defs) for name, field in fields.items() if name in required}
    maybe = {name: of_schema(field, defs) for name, field in fields.items() if name not in required}
    few = st.lists(st.sampled_from(sorted(maybe)), max_size=3, unique=True) if maybe else st.just([])
    return few.flatmap(lambda names: st.fixed_dictionaries(always | {name: maybe[name] for name in names}))
