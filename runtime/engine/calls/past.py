"""Earlier calls and offered tools as a chat template takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.engine.calls.form import NINE, NUMBERED, CallForm, JsonArguments, TaggedArguments, filled
from runtime.engine.calls.schemas import type_of
from runtime.engine.calls.values import written
from runtime.engine.chat_template import Message

Call = Mapping[str, Any]
NINE_LETTERS = re.compile("[a-zA-Z0-9]{9}")


def past_turns(messages: Sequence[Message], form: CallForm) -> list[Message]:
    """Return messages whose calls are as the form's template takes them: with ids and arguments of its kind, or as text
    where it writes none.
    """
    ids: dict[str, str] = {}
    return [_turn(message, form, ids) for message in messages]


def _turn(message: Message, form: CallForm, ids: dict[str, str]) -> Message:
    calls: Sequence[Call] = message.more.get("tool_calls", ())
    if calls and not form.past.are_rendered:
        more = {key: value for key, value in message.more.items() if key != "tool_calls"}
        text = "\n".join(filter(None, (message.content, written_calls(form, calls))))
        return Message(message.role, text, more)
    if calls:
        more = {**message.more, "tool_calls": [_call(call, form, ids) for call in calls]}
        if form.past.without_content and not message.content:
            more["content"] = None
        return Message(message.role, message.content, more)
    if (given := message.more.get("tool_call_id")) in ids:
        return replace(message, more={**message.more, "tool_call_id": ids[given]})
    return message


def _call(call: Call, form: CallForm, ids: dict[str, str]) -> dict[str, Any]:
    function = call["function"]
    given = str(call.get("id") or f"call_{len(ids)}")
    ids[given] = id_for(given, form.past.ids, function["name"], len(ids))
    arguments = function["arguments"]
    if form.past.as_text and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "id": ids[given], "function": {**function, "arguments": arguments}}


def id_for(given: str, pattern: str, name: str, number: int) -> str:
    """Return the id of a call in a template's pattern."""
    if pattern == NUMBERED:
        return f"functions.{name}:{number}"
    if pattern == NINE and not NINE_LETTERS.fullmatch(given):
        return f"call{number:05}"
    return given


def written_calls(form: CallForm, calls: Sequence[Call]) -> str:
    """Return calls as a model writes them."""
    text, n = "", len(calls)
    for i, call in enumerate(calls):
        name, holes = call["function"]["name"], {"index": str(i), "id": f"call{i:05}"}
        before = form.opening if not i or form.between is None else form.between
        after = form.closing if form.between is None or i == n - 1 else ""
        text += filled(before, **holes) + name + filled(form.head, name=name, **holes)
        text += _arguments(form, call["function"]["arguments"]) + filled(after, **holes)
    return text


def _arguments(form: CallForm, arguments: Any) -> str:
    if isinstance(form.arguments, JsonArguments) or not isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return "".join(_pair(form.arguments, key, value, i) for i, (key, value) in enumerate(arguments.items()))


def _pair(form: TaggedArguments, key: str, value: Any, i: int) -> str:
    style = form.styles[type_of(value)]
    text = f"{style.before}{written(value, style.notation)}{style.after}"
    return (form.next if i else form.first) + key + filled(text, key=key)


def plain_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tools with what some templates read without looking whether it is there: descriptions, one type for each
    value, and whether objects have further keys.
    """
    return [{**tool, "function": {"description": "", **tool["function"], **_plain(tool["function"])}} for tool in tools]


def _plain(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return {"parameters": _plain_schema(parameters) | {"description": parameters.get("description", "")}}


def _plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    usual = "object" if "properties" in schema else "string"
    found: dict[str, Any] = {"type": usual, "description": ""} | dict(schema)
    if isinstance(found["type"], list):
        found["type"] = next((kind for kind in found["type"] if kind != "null"), "string")
    if found["type"] == "object":
        found.setdefault("additionalProperties", {"type": "string"})
        properties = found.get("properties")
        found["properties"] = (
            {key: _plain_schema(each) for key, each in properties.items() if isinstance(each, dict)}
            if isinstance(properties, dict)
            else {}
        )
    if found["type"] == "array":
        items = found.get("items")
        found["items"] = _plain_schema(items) if isinstance(items, dict) else {"type": "string"}
    return found
