"""What would take long or end the process is refused before anything is compiled."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from llguidance import LLTokenizer

from runtime.conversation.calls.schemas import bound_schema
from runtime.conversation.calls.texts import MOST_COMBINED, TextExpressions
from runtime.core.errors import SettingsError
from runtime.sampling import checking
from runtime.sampling.bounds import MAX_KEYS, MAX_TEXT, excess, n_remainders, n_repeats
from runtime.sampling.grammar import Grammar, compile_grammar

BYTES = LLTokenizer("byte")
PRIMES = (7, 11, 13, 17, 19, 23, 29)


def chain(n: int, inside: str = "") -> dict[str, Any]:
    """A schema of definitions, each of which refers to the next one."""

    def link(i: int) -> dict[str, Any]:
        ref = {"$ref": f"#/$defs/d{i}"}
        return {"type": "object", "properties": {inside: ref}, "required": [inside]} if inside else ref

    return {"$ref": "#/$defs/d0", "$defs": {f"d{i}": link(i + 1) for i in range(n)} | {f"d{n}": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "integer", "multipleOf": prime} for prime in PRIMES]},
        {"type": "integer", "multipleOf": 99991},
        {
            "properties": {
                "a": {"type": "integer", "multipleOf": 9973, "anyOf": [{"multipleOf": 17}, {"multipleOf": 3}]}
            }
        },
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"multipleOf": 9973, "allOf": [{"$ref": "#/$defs/b"}]}, "b": {"multipleOf": 7}},
        },
        chain(5000),
        chain(2000, "a"),
    ],
    ids=["primes", "one prime", "alternatives", "definitions", "references", "objects"],
)
def test_a_schema_that_takes_long_is_refused_at_once(schema: dict[str, Any]) -> None:
    began = time.process_time()
    with pytest.raises(SettingsError, match=r"^The json_schema (has multipleOf|nests more than)"):
        compile_grammar(Grammar("json_schema", json.dumps(schema)), BYTES)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("schema", "n"),
    [
        ({"multipleOf": 100_000}, 1),
        ({"multipleOf": 0.01}, 1),
        ({"multipleOf": 0.25}, 25),
        ({"allOf": [{"multipleOf": 7}, {"multipleOf": 0.03}]}, 2100),
        ({"type": "string"}, 1),
        (
            {"multipleOf": 6, "$ref": "#/$defs/a", "$defs": {"a": {"multipleOf": 4, "allOf": [{"$ref": "#/$defs/a"}]}}},
            12,
        ),
    ],
)
def test_the_common_multiple_is_that_of_the_last_digits(schema: dict[str, Any], n: int) -> None:
    assert n_remainders(schema, schema) == n
    assert not excess(schema)


def test_what_is_usual_is_allowed() -> None:
    for schema in (
        chain(100),
        chain(50, "a"),
        {"allOf": [{"type": "integer", "multipleOf": prime} for prime in PRIMES[:4]]},
    ):
        compile_grammar(Grammar("json_schema", json.dumps(schema)), BYTES)


@pytest.mark.parametrize(
    ("begin", "of"),
    [("start: r0", 'r{}: r{} "x"?'), ("start: R0", 'R{}: "x" R{}'), ("start: r0", 'r{}: "(" r{} ")" | "x"')],
)
def test_rules_in_lark_that_nest_too_deeply_are_refused(begin: str, of: str) -> None:
    for n, is_allowed in ((300, True), (5000, False)):
        names = [of.format(i, i + 1) for i in range(n)]
        text = "\n".join([begin, *names, f'{begin[-2]}{n}: "a"'])
        if is_allowed:
            compile_grammar(Grammar("lark", text), BYTES)
            continue
        with pytest.raises(
            SettingsError, match=r"^The lark is not valid Lark: 500\d of its rules lie within each other"
        ):
            compile_grammar(Grammar("lark", text), BYTES)


def test_a_text_that_is_given_word_for_word_is_bounded() -> None:
    assert not excess({"enum": ["x" * MAX_TEXT, 5]})
    assert "has a text of 10001 characters" in excess({"items": {"const": "x" * (MAX_TEXT + 1)}})


COMBINED = {"allOf": [{"type": "string", "pattern": f".*a.{{{40 + i}}}"} for i in range(16)]}


def test_patterns_that_take_too_long_to_combine_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "LIMITS", checking.LIMITS._replace(seconds=1.0))
    with pytest.raises(SettingsError, match=r"cannot be compiled: it takes more than 1 s\. Simplify it"):
        compile_grammar(Grammar("json_schema", json.dumps(COMBINED)), BYTES)


def test_what_nobody_waits_for_is_compiled_no_further() -> None:
    began = time.monotonic()
    with pytest.raises(SettingsError, match="nobody waits for it"):
        compile_grammar(Grammar("json_schema", json.dumps(COMBINED)), BYTES, is_unwanted=lambda: True)
    assert time.monotonic() - began < checking.LIMITS.seconds


def test_many_patterns_that_are_apart_are_fine() -> None:
    words = {f"k{i}": {"type": "string", "pattern": f"^[a-z]{{1,{i + 1}}}$"} for i in range(40)}
    compile_grammar(Grammar("json_schema", json.dumps({"type": "object", "properties": words})), BYTES)


@pytest.mark.parametrize("inside", ["text", "key", "item"])
def test_a_tool_whose_patterns_take_too_long_to_combine_takes_any_arguments(
    inside: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checking, "LIMITS", checking.LIMITS._replace(seconds=1.0))
    words = [{"type": "string", "pattern": f".*a.{{{40 + i}}}"} for i in range(16)]
    parts: dict[str, Any] = {
        "text": {"allOf": words},
        "key": {"allOf": [{"type": "object", "properties": {"u": each}} for each in words]},
        "item": {"allOf": [{"type": "array", "items": each} for each in words]},
    }
    schema = json.dumps({"type": "object", "properties": {"t": parts[inside]}})
    assert json.loads(bound_schema(inside, schema)) == {"type": "object"}
    assert f"Tool '{inside}': its schema cannot be compiled: it takes more than 1 s" in caplog.text


def test_a_text_of_many_patterns_follows_the_first_of_them(caplog: pytest.LogCaptureFixture) -> None:
    """Where texts have no quotation marks, Lark intersects the patterns: sixteen take minutes."""
    expressions = TextExpressions({})
    found = expressions.of({"allOf": [{"type": "string", "pattern": f"w{i}"} for i in range(100)]})
    assert found.count(" & ") == MOST_COMBINED - 1
    assert [*expressions.lost] == ["allOf"]


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("^[a-z]{1,100}$", 100), ("(a{2}){3}", 6), ("(a{2}b){3}c{4}", 6), ("((a{10}){10}|b{200}){10}", 2000),
        ("a{3,}", 3), (r"\{9\}[{9}]\(a{2}", 2), ("(?:(x{5})y){5}", 25), ("a)b{2}(", 2), ("", 1),
        ("a{" + "9" * 5000 + "}", 1),
    ],
)  # fmt: skip
def test_repetitions_within_each_other_are_multiplied(pattern: str, most: int) -> None:
    assert n_repeats({"pattern": pattern}) == most


def test_many_circles_are_left_out_at_once() -> None:
    names = {f"k{i}": {"$ref": f"#/properties/k{i}"} for i in range(MAX_KEYS)}
    schema = json.loads(bound_schema("circles", json.dumps({"type": "object", "properties": names})))
    assert not any("$ref" in each for each in schema["properties"].values())
