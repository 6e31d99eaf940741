"""Calls that a model writes as JSON alone, without the marks of its form: found, and told from answers with JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.conversation.calls import BareCalls, Function
from tests.support.calls import FUNCTIONS

ARGUMENTS = {"city": "Oslo", "days": 3}
BARE = json.dumps({"name": "get_weather", "arguments": ARGUMENTS})


@pytest.mark.parametrize(
    "reply",
    [
        BARE,
        f"```json\n{BARE}\n```",
        f"\n```\n{BARE}\n```\n",
        f"<tools>\n{BARE}\n</tools>",
        json.dumps({"type": "function", "function": {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}}),
        json.dumps({"name": "get_weather", "parameters": ARGUMENTS}, indent=2),
        json.dumps({"name": "get_weather", "arguments": ARGUMENTS | {"hours": None}}),
        f"{{{BARE}}}",
        f"```json\n{{{BARE}}}\n```",
        f"{{{BARE}",
        f"{{{BARE}}}}}\nIt is sunny in Oslo.",
        f"{BARE}\n\nIt is {{sunny}} in Oslo.",
        "{" + json.dumps({"name": "get_weather", "arguments": ARGUMENTS}, indent=2) + "\n}",
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_reply_of_nothing_but_a_calls_json_is_a_call(reply: str, size: int) -> None:
    assert bare(reply, size) == ([("get_weather", ARGUMENTS)], "")


@pytest.mark.parametrize(
    "form", ["[{0}, {0}]", "{0}\n{0}", "{{{0}}}\n{{{0}}}", "```json\n{0}\n```\n```json\n{0}\n```", "{0};{0}"]
)
def test_several_bare_calls_are_calls_where_several_are_allowed(form: str) -> None:
    reply = form.format(BARE)
    assert bare(reply, 3)[0] == [("get_weather", ARGUMENTS)] * 2
    assert bare(reply, 3, parallel=False) == ([], reply)


@pytest.mark.parametrize(
    "reply",
    [
        f"Here is how a call looks:\n```json\n{BARE}\n```",
        f"```json\n{BARE}\n```\nThis calls the function.",
        f"{BARE} is how a call looks.",
        f"{BARE}\n{{",
        '{"name": "other", "arguments": {}}',
        '{"name": "get_weather", "arguments": {"days": 3}}',
        '{"name": "get_weather", "arguments": {"city": 1}}',
        '{"name": "get_weather", "arguments": {"city": null, "days": 3}}',
        '{"name": "get_weather"}',
        '{"name": "Ada", "born": 1815}',
        '{"city": "Oslo"}',
        "```python\nprint(1)\n```",
        "[1, 2, 3]",
        "{{ name }}",
        f"{{{{{BARE}}}}}",
        "{",
        "",
        "```json\n{\n```",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_examples_and_other_json_stay_text(reply: str, size: int) -> None:
    assert bare(reply, size) == ([], reply)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_call_in_the_tag_of_tools_may_follow_text(size: int) -> None:
    said = "I look it up, with <tool and <tools> as tags.\n\n"
    assert bare(f"{said}<tools>\n{BARE}\n</tools>", size) == ([("get_weather", ARGUMENTS)], said)
    for reply in (f"{said}{BARE}", f"{said}<tools>\n[1, 2]\n</tools>", f"{said}<tools>\n{BARE} is one."):
        assert bare(reply, size) == ([], reply)


def test_text_that_cannot_be_calls_comes_at_once() -> None:
    calls = BareCalls(FUNCTIONS, parallel=True)
    assert calls.feed("The weather") == "The weather"
    calls = BareCalls(FUNCTIONS, parallel=True)
    assert calls.feed("```py") == "```py"
    calls = BareCalls(FUNCTIONS, parallel=True)
    assert [calls.feed('{"'), calls.feed("city"), calls.feed('": 1')] == ["", '{"city', '": 1']
    calls = BareCalls(FUNCTIONS, parallel=True)
    assert [calls.feed('{"name": "Ada'), calls.feed('", '), calls.feed('"born')] == ["", '{"name": "Ada", ', '"born']


def test_calls_in_their_own_form_and_long_json_are_not_held_back() -> None:
    calls = BareCalls(FUNCTIONS, parallel=True, trigger="<tool_call>")
    assert [calls.feed("<tool"), calls.feed('_call>\n{"na'), calls.feed("me")] == ["", '<tool_call>\n{"na', "me"]
    calls = BareCalls(FUNCTIONS, parallel=True)
    long = '[{"id": 1, "title": "' + "x" * 2000
    assert calls.feed(long) == long


def test_a_schema_that_refers_elsewhere_is_not_fetched() -> None:
    far = Function("get_weather", {"properties": {"city": {"$ref": "http://127.0.0.1:9/schema"}}})
    calls = BareCalls([far], parallel=True)
    assert calls.feed(BARE) == ""
    assert calls.finish(is_cut=False)[0] == [("get_weather", json.dumps(ARGUMENTS))]


def bare(reply: str, size: int, parallel: bool = True) -> tuple[list[tuple[str, Any]], str]:
    """The calls that a reply is, or its text."""
    calls, text = BareCalls(FUNCTIONS, parallel, "<tool_call>\n<"), ""
    for at in range(0, len(reply), size):
        text += calls.feed(reply[at : at + size])
    found, rest = calls.finish(is_cut=False)
    return [(name, json.loads(arguments)) for name, arguments in found], text + rest
