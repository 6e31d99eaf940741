"""Real chat templates (llama.cpp's collection) are rendered as transformers renders them, for usual conversations."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from jinja2 import TemplateError as JinjaError

from runtime.conversation import chat_template
from runtime.conversation.chat_template import ChatTemplate, Message
from tests.support.collection import collection
from tests.support.reference_template import reference_text

LEAST = 500  # of 70 templates and eight conversations; the others are refused by the templates themselves
PARAMETERS = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "description": "where"},
        "days": {"type": "integer", "maximum": 100000},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["place"],
}
TOOLS = [{"type": "function", "function": {"name": "forecast", "description": "The weather", "parameters": PARAMETERS}}]
ASKED = Message("user", "Will it rain?")
DONE = Message("assistant", "Hello.", {"reasoning_content": "A greeting."})


def call(n: int, **arguments: Any) -> dict[str, Any]:
    """Return an assistant's call of the tool."""
    return {"id": f"call{n:05d}", "type": "function", "function": {"name": "forecast", "arguments": arguments}}


def calls(*made: dict[str, Any]) -> list[Message]:
    """Return a turn of the assistant with calls, and what the tool says to each."""
    answers = [Message("tool", "No.", {"name": "forecast", "tool_call_id": one["id"]}) for one in made]
    return [Message("assistant", "", {"tool_calls": list(made)}), *answers]


CONVERSATIONS = {
    "one question": ([Message("user", "Hi")], []),
    "a system prompt": ([Message("system", "Be short."), Message("user", "Hi")], []),
    "turns": ([Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Bye")], []),
    "reasoning": ([Message("user", "Hi"), DONE, Message("user", "Bye")], []),
    "tools": ([ASKED], TOOLS),
    "a call": ([ASKED, *calls(call(1, place="Oslo", days=3)), Message("user", "Thanks")], TOOLS),
    "a great number": ([ASKED, *calls(call(1, place="Oslo", days=1764183600))], TOOLS),
    "two calls": ([ASKED, *calls(call(1, place="Oslo"), call(2, place="Rome"))], TOOLS),
}


class Today(datetime):
    """A clock that stands still, as some templates write the time."""

    @classmethod
    def now(cls, tz: Any = None) -> Today:
        """Return always the same moment."""
        return cls(2026, 11, 26, 12, 0, 0)


@pytest.fixture(autouse=True)
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("runtime.conversation.chat_template", "tests.support.reference_template"):
        monkeypatch.setattr(f"{module}.datetime", Today)


def variables(messages: list[Message], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what transformers hands to a template, with what some ask for besides."""
    turns = [{"role": message.role, "content": message.content, **message.more} for message in messages]
    usual = {**chat_template.usual_variables(tools, Today.now()), "bos_token": "<s>", "eos_token": "</s>"}
    return json.loads(json.dumps({**usual, "messages": turns, "tools": tools or None, "add_generation_prompt": True}))


def test_real_templates_are_rendered_as_transformers_renders_them() -> None:
    n = 0
    for path in sorted((collection() / "templates").glob("*.jinja")):
        source = path.read_text("utf-8")
        for name, (messages, tools) in CONVERSATIONS.items():
            try:
                expected = reference_text(source, variables(messages, tools))
            except (JinjaError, TypeError, AttributeError):  # the template refuses it, or cannot do with it
                continue
            n += 1
            assert ChatTemplate(source, "<s>", "</s>").render(messages, tools) == expected, (path.name, name)
    assert n >= LEAST
