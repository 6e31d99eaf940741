"""Calls at the server in the form of each template, by the bundled model, which knows none of them: bound and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from runtime.conversation.prompt import PromptEncoder
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.support.call_templates import CHANNELS, FORMS, template
from tests.support.serving import READ_FILE, events, running

ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Read a.py"}], "tools": [READ_FILE], "temperature": 0, "max_tokens": 200
}  # fmt: skip
SHORT = {"type": "object", "properties": {"path": {"type": "string", "enum": ["a.py", "b.py"]}}, "required": ["path"]}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "Read a file", "parameters": SHORT}}
TEMPLATES = {name: template(calls) for name, calls in FORMS.items()} | {"channels": CHANNELS}


class Templated(LoadedEngine):
    """The bundled pair with another chat template."""

    def __init__(self, source: str, *args: Any) -> None:
        super().__init__(*args)
        self.facts = replace(self.facts, template=source)
        self._encoder = PromptEncoder(self.vocab, source, "templated", self.facts.n_ctx)


@pytest.fixture(scope="module", params=TEMPLATES)
def client(request: pytest.FixtureRequest) -> Iterator[httpx2.Client]:
    source = TEMPLATES[request.param]
    with running(
        lambda on_progress: Templated(source, load_registry()["demo"], Options(threads=1), on_progress)
    ) as here:
        yield here.client()


def merged(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """The one call of a stream."""
    pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls", ())]
    return {
        "name": "".join(piece.get("name", "") for piece in pieces),
        "arguments": "".join(piece.get("arguments", "") for piece in pieces),
    }


def test_a_call_that_must_be_made_is_made_whole_and_streamed_and_answered(client: httpx2.Client) -> None:
    asked = ASKED | {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    reply = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    (call,) = reply["message"]["tool_calls"]
    assert reply["finish_reason"] == "tool_calls"
    assert not reply["message"]["content"]
    assert call["function"]["name"] == "read_file"
    assert json.loads(call["function"]["arguments"])["path"] in ("a.py", "b.py")
    choices = [
        event["choices"][0] for event in events(client.post("/v1/chat/completions", json=asked | {"stream": True}))
    ]
    assert merged([choice["delta"] for choice in choices]) == call["function"]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == ""
    turns = [*ASKED["messages"], reply["message"], {"role": "tool", "tool_call_id": call["id"], "content": "import os"}]
    after = client.post("/v1/chat/completions", json=ASKED | {"messages": turns, "max_tokens": 2})
    assert after.status_code == 200, after.text
    prompt = client.post("/apply-template", json={"messages": turns, "tools": [TOOL]}).json()["prompt"]
    assert "import os" in prompt
    assert json.loads(call["function"]["arguments"])["path"] in prompt.partition("Read a.py")[2]


def test_a_tool_that_need_not_be_called_leaves_the_reply_free(client: httpx2.Client) -> None:
    reply = client.post("/v1/chat/completions", json=ASKED | {"max_tokens": 80})
    assert reply.status_code == 200, reply.text
    message = reply.json()["choices"][0]["message"]
    assert message["content"] or message.get("tool_calls") or message.get("reasoning_content")


def test_anthropics_clients_have_the_same_call(client: httpx2.Client) -> None:
    asked = {
        "messages": ASKED["messages"], "max_tokens": 200, "temperature": 0, "tool_choice": {"type": "any"},
        "tools": [{"name": "read_file", "input_schema": SHORT}],
    }  # fmt: skip
    reply = client.post("/v1/messages", json=asked).json()
    assert reply["content"][0]["type"] == "tool_use"
    assert reply["content"][0]["input"]["path"] in ("a.py", "b.py")
