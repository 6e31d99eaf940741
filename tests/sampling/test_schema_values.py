"""Values of JSON schemas: bounds hold whatever their size, and what cannot be enforced is named and costs nothing."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

import pytest

from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Message, Sampling
from runtime.sampling.schema import MAX_INTEGER, enforceable
from tests.conftest import OpenEngine

INTEGER: dict[str, Any] = {"type": "integer"}
LIST = {"type": "array", "items": INTEGER}


def answer(open_demo: OpenEngine, schema: dict[str, Any], seed: int = 1) -> Any:
    engine = open_demo(threads=1, drafters=())
    grammar = Grammar("json_schema", json.dumps(schema))
    chunks = engine.reply([Message("user", "A number?")], Sampling(temperature=1.5, seed=seed), 60, grammar=grammar)
    return json.loads("".join(chunk.text for chunk in chunks))


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        (INTEGER, -MAX_INTEGER, MAX_INTEGER),
        (INTEGER | {"format": "uint32"}, 0, 2**32 - 1),
        (INTEGER | {"format": "int8", "minimum": -3.5}, -3, 127),
        (INTEGER | {"maximum": 9007199254740999, "minimum": 9007199254740990}, 9007199254740990, 9007199254740999),
        (INTEGER | {"exclusiveMinimum": 2**62, "format": "int64"}, 2**62 + 1, 2**63 - 1),
        (INTEGER | {"minimum": 2**60}, 2**60, 2**61),
        (INTEGER | {"exclusiveMaximum": 4, "minimum": 3}, 3, 3),
    ],
)
def test_integers_are_within_their_bounds(open_demo: OpenEngine, schema: dict[str, Any], low: int, high: int) -> None:
    assert all(low <= answer(open_demo, schema, seed) <= high for seed in range(4))


@pytest.mark.parametrize("kind", ["password", "byte", "binary", "nobody-knows"])
def test_a_format_that_says_nothing_here_is_named_in_the_log(
    open_demo: OpenEngine, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "string", "format": kind, "maxLength": 3, "deprecated": True, "contentEncoding": "base64"}
    with caplog.at_level(logging.WARNING):
        assert len(answer(open_demo, schema)) <= 3
    assert caplog.messages == [f"The json_schema is enforced except for format {kind}."]


def test_items_that_are_to_differ_may_be_the_same(open_demo: OpenEngine, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 3, "uniqueItems": True}
    assert set(answer(open_demo, schema)) <= {1, 2}
    assert caplog.messages == ["The json_schema is enforced except for uniqueItems."]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (INTEGER | {"minimum": 5, "maximum": 3}, "minimum 5 is over maximum 3"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength 5 is over maxLength 2"),
        (
            {"type": "object", "properties": {"a": LIST | {"minItems": 3, "maxItems": 1}}, "required": ["a"]},
            "minItems 3 is over maxItems 1",
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused_in_words(
    open_demo: OpenEngine, schema: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        answer(open_demo, schema)


NONSENSE: list[dict[str, Any]] = [
    {"format": []},
    {"minimum": 10**400},
    {"maximum": "x"},
    {"exclusiveMinimum": True},
    {"uniqueItems": "x"},
    {"type": {}},
]


@pytest.mark.parametrize("wrong", NONSENSE)
def test_nonsense_is_refused_in_words_or_left_alone(open_demo: OpenEngine, wrong: dict[str, Any]) -> None:
    with suppress(SettingsError):
        assert answer(open_demo, INTEGER | wrong) is not None


def test_what_can_be_enforced_is_left_as_it_is() -> None:
    schema: dict[str, Any] = {
        "properties": {"a": {"enum": [1, 2**60]}, "b": {"type": ["integer", "number"]}, "c": {"format": "uuid"}},
        "items": [{"type": "integer", "multipleOf": 5}],
    }
    assert enforceable(schema) == (schema, ())
