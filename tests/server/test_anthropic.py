"""Anthropic's Messages: the requests of its clients, and the replies and events in the order that they read them."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from app.server.anthropic.messages import BILLING, AnthropicConversation
from tests.support.serving import Running, open_plain, running

QUESTION = "What does os.path.join do?"
ASKED: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 12,
    "temperature": 0,
    "messages": [{"role": "user", "content": QUESTION}],
}
TOOL: dict[str, Any] = {
    "name": "read_file",
    "description": "Read a file",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"enum": ["a.py", "b.py"]}},
        "required": ["path"],
        "additionalProperties": False,
    },
}
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Read a.py", "cache_control": {"type": "ephemeral"}}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "A file.", "signature": ""},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "import os"}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no file", "is_error": True},
            {"type": "text", "text": "And now?"},
        ],
    },
]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
KEY = "sk-secret"


@pytest.fixture(scope="module")
def client(here: Running) -> httpx2.Client:
    return here.client(headers={"anthropic-version": "2023-06-01", "anthropic-beta": "any-2026-01-01"})


def ask(client: httpx2.Client, **change: Any) -> dict[str, Any]:
    reply = client.post("/v1/messages", json=ASKED | change)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def stream(client: httpx2.Client, **change: Any) -> list[dict[str, Any]]:
    """The events, each under its own name."""
    reply = client.post("/v1/messages?beta=true", json=ASKED | {"stream": True} | change)
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for part in reply.text.split("\n\n"):
        if part and not part.startswith(":"):
            name, data = part.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def refusal(reply: httpx2.Response, status: int, kind: str) -> str:
    body = reply.json()
    assert (reply.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert body["error"].keys() == {"type", "message"}
    message: str = body["error"]["message"]
    return message


def test_the_text_is_a_chats_whatever_model_is_asked_for(client: httpx2.Client) -> None:
    reply = ask(client, system="Be brief.", metadata={"user_id": "me"}, top_p=0.9, top_k=40)
    turns = [{"role": "system", "content": "Be brief."}, *ASKED["messages"]]
    chat = client.post("/v1/chat/completions", json={"messages": turns, "max_tokens": 12, "temperature": 0}).json()
    assert reply["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    assert (reply["type"], reply["role"], reply["model"]) == ("message", "assistant", "demo")
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("max_tokens", None)
    assert reply["id"].startswith("msg_")


def test_what_the_cache_held_is_counted_apart(client: httpx2.Client) -> None:
    counted = client.post("/v1/messages/count_tokens", json={"messages": ASKED["messages"]}).json()
    for _ in range(2):
        usage = ask(client)["usage"]
        assert {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]} == counted
    assert usage["cache_read_input_tokens"] > usage["input_tokens"]
    assert usage["output_tokens"] == 12


def test_a_stream_says_the_same_in_order(client: httpx2.Client) -> None:
    found, whole = stream(client, max_tokens=100), ask(client, max_tokens=100)
    names = [event["type"] for event in found]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}
    assert found[0]["message"]["usage"]["input_tokens"] > 0
    assert found[0]["message"]["content"] == []
    assert "".join(event["delta"]["text"] for event in found[3:-3]) == whole["content"][0]["text"]
    assert found[-2]["delta"] == {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    assert found[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_a_stop_sequence_is_named(client: httpx2.Client) -> None:
    word = ask(client)["content"][0]["text"].split()[3]
    cut = ask(client, stop_sequences=["nowhere", word])
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", word)
    assert all(word not in block["text"] for block in cut["content"])
    assert ask(client, max_tokens=32_000)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "read_file"}])
def test_a_tool_that_must_be_used_is_used(client: httpx2.Client, choice: dict[str, Any]) -> None:
    more = {"tools": [TOOL], "tool_choice": choice | {"disable_parallel_tool_use": True}, "max_tokens": 60}
    reply = ask(client, **more)
    (block,) = reply["content"]
    assert (block["type"], block["name"], reply["stop_reason"]) == ("tool_use", "read_file", "tool_use")
    assert block["id"].startswith("toolu_")
    assert block["input"]["path"] in ("a.py", "b.py")
    found = stream(client, **more)
    pieces = [event["delta"]["partial_json"] for event in found if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == block["input"]
    assert found[1]["content_block"]["input"] == {}


def test_tools_are_told_of_unless_none_may_be_used(client: httpx2.Client) -> None:
    def count(**more: Any) -> int:
        return int(client.post("/v1/messages/count_tokens", json=ASKED | more).json()["input_tokens"])

    assert count(tools=[TOOL]) > count(tools=[TOOL], tool_choice={"type": "none"}) == count()
    assert count(system=[{"type": "text", "text": "Be brief."}]) == count(system="Be brief.") > count()


def test_a_conversation_with_tools_becomes_a_chats() -> None:
    system = [
        {"type": "text", "text": f"{BILLING} cch=1;"},
        {"type": "text", "text": "A"},
        {"type": "text", "text": "B"},
    ]
    chat = AnthropicConversation.model_validate({"messages": TURNS, "system": system}).chat()
    found = [(each.role, "".join(part.text for part in each.content or ())) for each in chat.messages]
    assert found == [
        ("system", "A\n\nB"),
        ("user", "Read a.py"),
        ("assistant", "I look."),
        ("tool", "import os"),
        ("tool", "Error: no file"),
        ("user", "And now?"),
    ]
    said = chat.messages[2].message().more
    assert said["reasoning_content"] == "A file."
    assert said["tool_calls"][0]["function"] == {"name": "read_file", "arguments": {"path": "a.py"}}


def test_the_turn_after_a_call_is_answered(client: httpx2.Client) -> None:
    assert ask(client, messages=TURNS, tools=[TOOL], thinking={"type": "adaptive"})["usage"]["input_tokens"] > 0


def test_a_schema_holds(client: httpx2.Client) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1]}}, "required": ["n"], "additionalProperties": False}
    reply = ask(
        client, max_tokens=60, output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    )
    assert json.loads(reply["content"][0]["text"]) == {"n": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_tokens": None}, "max_tokens must"),
        ({"messages": []}, "messages must have at least 1 item"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "image input is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "secret"}]}]}, "must be a JSON object of type text or"),
        ({"tools": [{"type": "custum", "name": "f", "input_schema": {}}]}, "tools.0"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "any"}},
            "this server has no tools of its own",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, "Prompt is too long"),
    ],
)
def test_a_refusal_is_in_anthropics_shape(client: httpx2.Client, change: dict[str, Any], words: str) -> None:
    said = refusal(client.post("/v1/messages", json=ASKED | change), 400, "invalid_request_error")
    assert words in said
    assert "secret" not in said


def test_a_path_that_is_not_there_is_told_in_that_shape_too(client: httpx2.Client) -> None:
    refusal(client.post("/v1/messages/batches", json={}), 404, "not_found_error")
    refusal(client.get("/v1/messages"), 405, "invalid_request_error")


def test_the_key_may_come_as_anthropics_clients_send_it() -> None:
    with running(open_plain, api_key=KEY) as here:
        client = here.client()
        for name, value in (("x-api-key", KEY), ("authorization", f"Bearer {KEY}")):
            assert client.post("/v1/messages", json=ASKED, headers={name: value}).status_code == 200
        said = client.post("/v1/messages", json=ASKED, headers={"x-api-key": "wrong"})
        assert "x-api-key" in refusal(said, 401, "authentication_error")
