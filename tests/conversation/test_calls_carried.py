"""What a form of calls can carry is read back as it was written, and what it cannot is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.conversation.calls import CallForm, CallParser, Function, ReplyPart
from runtime.conversation.calls.past import written_calls
from runtime.core.errors import SettingsError
from tests.support.calls import CALLS, FUNCTIONS, gathered, turn
from tests.support.carried import (
    EVERY_FORM,
    PIECES,
    Case,
    case_of,
    cases,
    fate,
    is_taken,
    literals_of,
    logged,
    parsed,
    required_grammar,
)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What is logged."""
    with logged() as found:
        yield found


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", EVERY_FORM)
def test_a_call_that_the_grammar_takes_is_read_back_and_any_other_is_told(name: str, data: st.DataObject) -> None:
    assert fate(EVERY_FORM[name], data.draw(cases(EVERY_FORM[name])))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", EVERY_FORM)
def test_a_hostile_reply_is_the_same_however_it_is_cut(name: str, data: st.DataObject) -> None:
    form = EVERY_FORM[name]
    reply, is_cut = data.draw(hostile_replies(form)), data.draw(st.booleans())
    whole = cut_up(form, reply, len(reply) or 1, is_cut)
    for size in (1, data.draw(st.integers(2, 9))):
        assert cut_up(form, reply, size, is_cut) == whole, reply


def hostile_replies(form: CallForm) -> st.SearchStrategy[str]:
    """Replies of parts of calls, whole ones among them, in any order."""
    whole = [written_calls(form, turn(calls).more["tool_calls"]) for calls in CALLS.values()]
    parts = [*whole, *(text[: len(text) // 2] for text in whole), *literals_of(form, "city"), *PIECES, "get", "city"]
    return st.lists(st.sampled_from(parts), max_size=6).map("".join)


def cut_up(form: CallForm, reply: str, size: int, is_cut: bool) -> tuple[str, list[list[str]]]:
    """The text, and the calls with their arguments as text, in a reply that comes in pieces of this size."""
    parser, parts = CallParser(form, FUNCTIONS), list[ReplyPart]()
    for at in range(0, len(reply), size):
        parts += parser.feed(reply[at : at + size])
    return gathered([*parts, *parser.finish(is_cut)])


BOUND: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "string", "pattern": "^[a-z]+$"}, "abc", "ABC"),
    ({"type": "string", "pattern": "[0-9]{3}"}, "a123b", "a12b"),
    ({"type": "string", "pattern": "^a|b$"}, "xxb", "bxx"),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abcd"),
    ({"type": "string", "maxLength": 3000, "pattern": "x"}, "ax", "a"),
    ({"type": "string", "format": "date"}, "2024-02-28", "2024-02-30"),
    ({"type": "string", "format": "ipv4"}, "127.0.0.1", "127.0.0.256"),
    ({"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "null"}]}, "ab", "ba"),
    ({"allOf": [{"type": "string", "pattern": "^a"}, {"maxLength": 2}]}, "ab", "abc"),
    ({"$ref": "#/$defs/Short"}, "ab", "abc"),
    ({"type": "string", "enum": ["red", "blue"]}, "red", "green"),
    ({"type": "string", "pattern": "^(?!no)", "maxLength": 3}, "no", "yess"),
]


@pytest.mark.parametrize(("schema", "good", "bad"), BOUND)
@pytest.mark.parametrize("name", EVERY_FORM)
def test_texts_are_bound_by_their_schema_in_every_form(name: str, schema: dict[str, Any], good: str, bad: str) -> None:
    form, definitions = EVERY_FORM[name], {"Short": {"type": "string", "maxLength": 2}}
    whole = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": definitions}
    for text, is_good in ((good, True), (bad, False)):
        case = Case(Function("f", whole), {"v": text})
        written = written_calls(form, [{"function": {"name": "f", "arguments": case.arguments}}])
        assert is_taken(required_grammar(form, case), written) == is_good, written


VALUES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"type": "integer", "minimum": 3, "maximum": 5}, 4, 6),
    ({"type": "array", "items": {"type": "string", "pattern": "^a"}, "maxItems": 2}, ["a", "ab"], ["b"]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [1, 2], [1, 2, 3]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1], []),
    (
        {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"type": "null"}}, "required": ["a"]},
        {"a": "x"},
        {},
    ),
    ({"type": "object", "additionalProperties": {"type": "boolean"}}, {"k": True}, {"k": 1}),
    ({"enum": [1, "x", None]}, None, 2),
    ({"$ref": "#/$defs/Tree"}, {"value": 1, "next": {"value": 2}}, {"value": 1, "next": {"value": "x"}}),
]
TREE = {"Tree": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/Tree"}},
                 "required": ["value"]}}  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), VALUES)
@pytest.mark.parametrize("name", [name for name in EVERY_FORM if name not in ("python", "lfm2")])
def test_other_values_are_bound_by_their_schema_in_every_form(
    name: str, schema: dict[str, Any], good: Any, bad: Any
) -> None:
    form, whole = EVERY_FORM[name], {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": TREE}
    for value, is_good in ((good, True), (bad, False)):
        case = Case(Function("f", whole), {"v": value})
        written = written_calls(form, [{"function": {"name": "f", "arguments": case.arguments}}])
        assert is_taken(required_grammar(form, case), written) == is_good, written


def test_further_keys_follow_their_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}
    for name in ("tags", "pairs", "gemma"):
        form, function = EVERY_FORM[name], Function("f", schema)
        for arguments, is_good in (({"a": None, "b": 1, "c": 2}, True), ({"b": 1}, True), ({"b": None}, False)):
            case = Case(function, arguments)
            written = written_calls(form, [{"function": {"name": "f", "arguments": arguments}}])
            assert is_taken(required_grammar(form, case), written) == is_good, written
            assert parsed(form, [function], written, 1) == ("", [("f", arguments)])


@pytest.mark.parametrize("pattern", ["^(?!no)", "(^a)", "^a$"])
def test_a_pattern_that_cannot_be_costs_only_itself_and_is_told(told: list[str], pattern: str) -> None:
    other = {"type": "string", "enum": ["x", "y"]}
    schema = {"type": "string", "pattern": pattern} | ({"enum": ["b"]} if pattern == "^a$" else {})
    whole = {"type": "object", "properties": {"p": schema, "q": other}, "required": ["q"]}
    form, function = EVERY_FORM["tags"], Function(f"f{len(pattern)}", whole)
    for value, is_good in (("x", True), ("z", False)):
        grammar = required_grammar(form, Case(function, {}))
        written = written_calls(form, [{"function": {"name": function.name, "arguments": {"p": "b", "q": value}}}])
        assert is_taken(grammar, written) == is_good
    assert any("'pattern'" in line and "only the rest" in line for line in told)


@pytest.mark.parametrize("name", ["elements", "tags", "pairs"])
def test_a_long_name_that_looks_like_the_form_is_taken(name: str) -> None:
    form = EVERY_FORM[name]
    assert fate(form, case_of("]]>" + 3 * form.opening + "x" * 300, ({"type": "string"}, ""))) == "read back"


def test_a_value_that_contains_the_closing_marks_is_written_and_read_whole() -> None:
    text = "a</parameter>\n</function>\n</tool_call>"
    schema = {"type": "object", "properties": {"t": {"const": text}, "l": {"type": "array"}}, "required": ["t"]}
    form, function, arguments = EVERY_FORM["tags"], Function("f", schema), {"t": text, "l": [text, {"k": text}]}
    grammar = required_grammar(form, Case(function, arguments))
    written = written_calls(form, [{"function": {"name": "f", "arguments": arguments}}])
    assert is_taken(grammar, written)
    assert not is_taken(grammar, written.replace("<![CDATA[", "").replace("]]>", ""))
    for size in (1, 7, 1000):
        assert parsed(form, [function], written, size) == ("", [("f", arguments)])


def test_what_a_form_cannot_carry_is_refused_where_it_is_required_and_left_out_elsewhere(told: list[str]) -> None:
    form, odd = EVERY_FORM["gemma"], {"const": 'a<|"|>b'}
    needed = {"type": "object", "properties": {"t": odd}, "required": ["t"]}
    with pytest.raises(SettingsError, match="argument 't' cannot be written in the form in which this model calls"):
        required_grammar(form, Case(Function("f", needed), {}))
    optional = Function("g", needed | {"required": []})
    assert is_taken(required_grammar(form, Case(optional, {})), "<|tool_call>call:g{}<tool_call|>")
    assert any("'t'" in line for line in told)
