"""References of a schema that lead in a circle: named, told from recursion that ends, refused before a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from runtime.conversation.calls.schemas import bound_schema
from runtime.sampling.bounds import MAX_TEXT, endless
from tests.support.serving import open_plain, running

A: dict[str, Any] = {"$ref": "#/$defs/a"}
B: dict[str, Any] = {"$ref": "#/$defs/b"}


def node(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


def defined(a: Any, b: Any = None, **root: Any) -> dict[str, Any]:
    return {"$defs": {"a": a, "b": b}, **root}


CIRCLES = [
    ({"$ref": "#"}, "#"),
    (defined(A, **A), "#/$defs/a"),
    (defined(B, A, **A), "#/$defs/a"),
    (defined(A, **node(x=A)), "#/$defs/a"),
    ({"allOf": [{"$ref": "#"}]}, "#"),
    ({"anyOf": [{"$ref": "#"}, {"oneOf": [{"$ref": "#"}]}]}, "#"),
    (node("n", n={"$ref": "#"}), "#"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "#"),
    ({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1}, "#"),
    ({"$ref": "#/properties/a~1b", "properties": {"a/b": {"$ref": "#"}}}, "#"),
    (defined(node("n", n=B), {"allOf": [A]}, **node("x", x=A)), "#/$defs/a"),
]
ENDING = [
    node("n", n={"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
    node(n={"$ref": "#"}),
    {"anyOf": [{"$ref": "#"}, {"type": "string"}]},
    {"type": ["object", "null"], "properties": {"n": {"$ref": "#"}}, "required": ["n"]},
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "array", "prefixItems": [{}], "items": {"$ref": "#"}, "minItems": 1},
    defined(node("n", n={"type": "array", "items": B}), node("m", m=A), **A),
    {"$ref": "#/$defs/nowhere"},
    {"$ref": "https://example.org/schema"},
    {"$ref": "#/$defs/0/x", "$defs": [1]},
]


@pytest.mark.parametrize(("schema", "ref"), CIRCLES)
def test_a_circle_is_named(schema: Any, ref: str) -> None:
    assert endless(schema)[0] == ref


@pytest.mark.parametrize("schema", ENDING)
def test_recursion_that_may_end_is_none(schema: Any) -> None:
    assert not endless(schema)


def test_many_references_are_followed_in_time() -> None:
    names = [f"d{(7919 * i) % 20_000}" for i in range(20_000)]
    chain = {name: {"$ref": f"#/$defs/{after}"} for name, after in pairwise(names)}
    assert not endless({"$defs": chain | {names[-1]: {}}, "$ref": f"#/$defs/{names[0]}"})
    assert endless({"$defs": chain | {names[-1]: {"$ref": f"#/$defs/{names[0]}"}}})


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("schema", "ref"), CIRCLES)
def test_a_circle_is_refused_before_a_stream_begins(client: httpx2.Client, schema: Any, ref: str, stream: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "response_format": wanted, "stream": stream}
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["message"].startswith(f"The json_schema refers to '{ref}' in a circle")
    assert error["param"] == "response_format"


def test_a_tool_with_a_circle_takes_any_arguments(caplog: pytest.LogCaptureFixture) -> None:
    assert json.loads(bound_schema("f", '{"$ref": "#"}'))["type"] == "object"
    assert "Tool 'f': '$ref #' cannot be enforced" in caplog.text


LONG = "x" * (MAX_TEXT + 1)
COSTLY = [
    ({"type": "integer", "multipleOf": 99991}, {"type": "integer"}, "multipleOf"),
    ({"allOf": [{"type": "integer", "multipleOf": prime} for prime in (101, 103, 107)]}, None, "multipleOf"),
    ({"enum": ["y", LONG]}, {}, "enum"),
    ({"type": "string", "const": LONG}, {"type": "string"}, "const"),
    ({"type": "string", "pattern": "^(([a-z]{1,100}){1,100}){1,100}$"}, {"type": "string"}, "pattern"),
    ({"type": "string", "allOf": [{"$ref": "#/properties/t"}]}, None, "$ref #/properties/t"),
]


@pytest.mark.parametrize(("costly", "left", "keyword"), COSTLY, ids=range(len(COSTLY)))
def test_what_takes_too_long_in_a_tools_schema_costs_only_itself(
    costly: Any, left: Any, keyword: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"t": costly, "u": {"enum": ["x"]}}, "required": ["t", "u"]}
    found = json.loads(bound_schema("f", json.dumps(schema)))
    assert found["required"] == ["t", "u"]
    assert found["properties"]["u"] == {"enum": ["x"]}
    assert keyword.split(maxsplit=1)[0] not in found["properties"]["t"]
    assert left is None or left.items() <= found["properties"]["t"].items()
    assert f"Tool 'f': '{keyword}'" in caplog.text


def test_an_anchor_is_no_circle() -> None:
    assert not endless({"$ref": "#foo", "$defs": {"x": {"$anchor": "foo", "type": "integer"}}})
