"""JSON schemas: where they are closed, what of them cannot be enforced, and what a client is told of that."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from runtime.engine import closed
from runtime.sampling.checking import supported, unsupported
from tests.support.serving import open_plain, running

NAMED: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
SHUT = NAMED | {"additionalProperties": False}
OTHER: dict[str, Any] = {"properties": {"b": {"type": "integer"}}}
LOOK_AHEAD: dict[str, Any] = {"type": "string", "pattern": "(?=x)x"}


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (NAMED, SHUT),
        ({"items": NAMED}, {"items": SHUT}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"$defs": {"x": NAMED}, "$ref": "#/$defs/x"}, {"$defs": {"x": SHUT}, "$ref": "#/$defs/x"}),
        (
            {"properties": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}, "$defs": {"x": NAMED}},
            {
                "properties": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}},
                "$defs": {"x": SHUT},
                "additionalProperties": False,
            },
        ),
    ],
)
def test_keys_that_a_schema_does_not_name_do_not_come(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert closed(schema) == wanted


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        NAMED | {"additionalProperties": {"type": "string"}},
        NAMED | {"patternProperties": {"^x": {}}},
        NAMED | {"required": ["b"]},
        NAMED | {"anyOf": [{"required": ["a"]}, OTHER]},
        {"allOf": [NAMED, OTHER]},
        {"allOf": [{"$ref": "#/$defs/x"}, OTHER], "$defs": {"x": NAMED}},
        {"enum": [{"properties": {}}]},
        {"properties": 5, "required": 5, "items": 5},
    ],
)
def test_schemas_that_speak_of_further_keys_stay_as_they_are(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [
        (NAMED, ()),
        ({"properties": {"format": LOOK_AHEAD}}, ("pattern",)),
        ({"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": LOOK_AHEAD}}, ("pattern",)),
        ({"items": {"not": {}}, "uniqueItems": True}, ("not", "uniqueItems")),
        ({"$ref": "#/none"}, ("$ref",)),
        ({"type": "strin"}, ("type",)),
    ],
)
def test_keywords_that_cannot_be_enforced_are_named(schema: dict[str, Any], keywords: tuple[str, ...]) -> None:
    assert unsupported(schema) == keywords


def test_each_keyword_that_cannot_be_enforced_costs_only_itself() -> None:
    odd = [{"type": "string", "pattern": f"^(?!no{i})", "maxLength": 5} for i in range(20)]
    found, keywords = supported({"type": "object", "properties": {f"k{i}": each for i, each in enumerate(odd)}})
    assert keywords == ("pattern",)
    assert found["properties"] == {f"k{i}": {"type": "string", "maxLength": 5} for i in range(20)}


def asked(demo: httpx2.Client, body: dict[str, Any]) -> httpx2.Response:
    messages = [{"role": "user", "content": "Say anything."}]
    return demo.post("/v1/chat/completions", json={"messages": messages, "seed": 3, "max_tokens": 150} | body)


def test_a_reply_has_the_named_keys_only(demo: httpx2.Client) -> None:
    schema = NAMED | {"required": ["a"]}
    reply = asked(demo, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
    assert json.loads(reply.json()["choices"][0]["message"]["content"]).keys() == {"a"}


def test_an_impossible_schema_is_refused_by_its_keyword(demo: httpx2.Client) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"p": LOOK_AHEAD}}}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    for more in ({}, {"tools": tools}):
        reply = asked(demo, {"response_format": wanted} | more)
        assert reply.status_code == 400
        assert "'pattern' is not supported" in reply.json()["error"]["message"]
        assert "error:" not in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("parameters", "keyword"),
    [
        ({"properties": {"b": LOOK_AHEAD, "a": {"enum": ["x"]}}, "required": ["a"]}, "pattern"),
        ({"properties": {"a": {"enum": ["x"]}}, "required": ["a"], "minProperties": 1, "not": {}}, "not"),
    ],
)
def test_a_tools_schema_costs_what_cannot_be_enforced_of_it(
    demo: httpx2.Client, caplog: pytest.LogCaptureFixture, parameters: dict[str, Any], keyword: str
) -> None:
    name = f"odd_{keyword}"
    tool = {"type": "function", "function": {"name": name, "parameters": {"type": "object"} | parameters}}
    with caplog.at_level(logging.WARNING):
        reply = asked(demo, {"tools": [tool], "tool_choice": "required", "max_tokens": 60})
    assert reply.status_code == 200
    (line,) = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    assert f"'{keyword}'" in line
    assert "only the rest" in line
    (call,) = reply.json()["choices"][0]["message"]["tool_calls"][:1]
    assert json.loads(call["function"]["arguments"])["a"] == "x"
