"""Prepares earlier calls and offered tools for a chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runtime.conversation.calls.form import TEXT, CallForm, JsonArguments, TaggedArguments, filled
from runtime.conversation.calls.schemas import type_of
from runtime.conversation.calls.texts import CDATA, CDATA_END, core
from runtime.conversation.calls.values import written
from runtime.conversation.chat_template import Message
from runtime.conversation.past_calls import CallFields
from runtime.conversation.turns import calls_of, with_calls

Call = Mapping[str, Any]


def past_turns(messages: Sequence[Message], form: CallForm | None) -> list[Message]:
    """Return messages with calls as text if the template writes none, or with ids that name the function if it requires
    that.

    Other requirements for calls are found when a conversation is fitted to the template.
    """
    if form is not None and form.past is None:
        return [_with_text(message, form) for message in messages]
    return (
        CallFields(numbered_ids=True).apply(messages) if form and form.past and form.past.numbered_ids else [*messages]
    )


def _with_text(message: Message, form: CallForm) -> Message:
    calls = calls_of(message)
    if not calls:
        return message
    return with_calls(
        replace(message, content="\n".join(filter(None, (message.content, written_calls(form, calls))))), ()
    )


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
    before, after = (filled(literal, key=key) for literal in (style.before, style.after))
    text = written(value, style.notation)
    if style.notation == TEXT and isinstance(value, str) and (core(after.strip()) in text or text.startswith(CDATA)):
        text = f"{CDATA}{text}{CDATA_END}"
        after = after.lstrip()
    return (form.next if i else form.first) + key + before + text + after


def plain_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tools with the fields that some templates read without checking: descriptions, a single type for each
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
