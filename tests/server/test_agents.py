"""Coding agents' own requests, as recorded from them: every field is taken, and a turn with a tool goes round.

A call is forced, because the bundled model was not trained to make any.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.agents import (
    CLAUDE,
    CLAUDE_HEADERS,
    CODEX,
    CODEX_FOR_A_KNOWN_MODEL,
    CODEX_HEADERS,
    EXEC_COMMAND,
    OPENCODE,
    OPENCODE_HEADERS,
    POSITIVE,
    closed,
    codex_message,
)
from tests.support.serving import events, open_plain, running

COMMAND = "cat a.txt"
FORCED = closed({"cmd": {"const": COMMAND}}, "cmd")
OUTPUT = "Process exited with code 0\nOutput:\npineapple\n"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


def named_events(reply: httpx2.Response) -> list[Any]:
    """A stream's events, each under its own name."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    parts = [part.split("\n") for part in reply.text.split("\n\n") if part and not part.startswith(":")]
    found = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert [name for name, _ in parts] == [f"event: {event['type']}" for event in found]
    return found


def codex(client: httpx2.Client, **change: Any) -> list[Any]:
    return named_events(client.post("/v1/responses", json=CODEX | change, headers=CODEX_HEADERS))


def claude(client: httpx2.Client, **change: Any) -> list[Any]:
    return named_events(client.post("/v1/messages?beta=true", json=CLAUDE | change, headers=CLAUDE_HEADERS))


def test_codexs_first_request_is_answered_as_it_is(client: httpx2.Client) -> None:
    *_, last = codex(client, max_output_tokens=4)
    assert last["type"] in ("response.completed", "response.incomplete")
    assert [tool["name"] for tool in last["response"]["tools"]] == ["exec_command", "write_stdin", "get_goal"]
    assert last["response"]["store"] is False


def test_codex_may_take_the_model_for_one_of_openais(client: httpx2.Client) -> None:
    *_, last = codex(client, max_output_tokens=4, **CODEX_FOR_A_KNOWN_MODEL)
    assert [tool["name"] for tool in last["response"]["tools"]] == ["exec_command"]
    assert last["response"]["model"] == "demo"


def test_codex_is_told_of_a_full_context_by_the_code_that_it_knows(client: httpx2.Client) -> None:
    turns = [*CODEX["input"], codex_message("user", "word " * 3000)]
    reply = client.post("/v1/responses", json=CODEX | {"input": turns}, headers=CODEX_HEADERS)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_codexs_turn_with_a_tool_goes_round(client: httpx2.Client) -> None:
    tools, choice = [EXEC_COMMAND | {"parameters": FORCED}], {"type": "function", "name": "exec_command"}
    first = codex(client, tools=tools, tool_choice=choice)
    (call,) = [event["item"] for event in first if event["type"] == "response.output_item.done"]
    assert first[-1]["type"] == "response.completed"
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "exec_command",
        {"cmd": COMMAND},
    )
    answer = {"type": "function_call_output", "id": "fco_1", "call_id": call["call_id"], "output": OUTPUT}
    second = codex(client, input=[*CODEX["input"], call, answer], max_output_tokens=4)
    usage, before = (each[-1]["response"]["usage"] for each in (second, first))
    assert [event["item"]["type"] for event in second if event["type"] == "response.output_item.added"] == ["message"]
    assert usage["input_tokens"] > before["input_tokens"]
    assert {"cached_tokens"} <= usage["input_tokens_details"].keys()


def test_claude_codes_first_request_is_answered_as_it_is(client: httpx2.Client) -> None:
    found = claude(client, max_tokens=4)
    assert [found[0]["type"], found[-1]["type"]] == ["message_start", "message_stop"]
    assert found[-2]["delta"]["stop_reason"] in ("max_tokens", "end_turn", "tool_use")


def test_claude_codes_turn_with_a_tool_goes_round(client: httpx2.Client) -> None:
    tools = [CLAUDE["tools"][0] | {"input_schema": closed({"command": {"const": COMMAND}}, "command")}]
    first = claude(client, tools=tools, tool_choice={"type": "tool", "name": "Bash"})
    (block,) = [event["content_block"] for event in first if event["type"] == "content_block_start"]
    text = "".join(event["delta"]["partial_json"] for event in first if event["type"] == "content_block_delta")
    assert (block["type"], block["name"], json.loads(text)) == ("tool_use", "Bash", {"command": COMMAND})
    assert first[-2]["delta"]["stop_reason"] == "tool_use"
    call = {"role": "assistant", "content": [block | {"input": json.loads(text)}]}
    result = {
        "tool_use_id": block["id"],
        "type": "tool_result",
        "content": "pineapple",
        "is_error": False,
        "cache_control": {"type": "ephemeral"},
    }
    turns = [*CLAUDE["messages"], call, {"role": "user", "content": [result]}]
    second = claude(client, messages=turns, max_tokens=4)
    (block,) = [event["content_block"] for event in second if event["type"] == "content_block_start"]
    assert block["type"] == "text"


@pytest.mark.parametrize("tool", CLAUDE["tools"], ids=lambda tool: str(tool["name"]))
def test_each_of_claude_codes_schemas_can_be_followed(client: httpx2.Client, tool: dict[str, Any]) -> None:
    asked = CLAUDE | {"stream": False, "tools": [tool], "temperature": 0, "tool_choice": {"type": "any"}}
    reply = client.post("/v1/messages", json=asked | {"max_tokens": 200}, headers=CLAUDE_HEADERS)
    assert reply.status_code == 200, reply.text
    (block,) = reply.json()["content"]
    assert (block["type"], block["name"]) == ("tool_use", tool["name"])
    assert block["input"].keys() <= tool["input_schema"]["properties"].keys()


def test_the_line_that_changes_with_each_request_spoils_no_cache(client: httpx2.Client) -> None:
    system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.b;"}, *CLAUDE["system"][1:]]
    claude(client, max_tokens=1)
    usage = claude(client, max_tokens=1, system=system)[-2]["usage"]
    assert usage["cache_read_input_tokens"] > 10 * usage["input_tokens"]


def opencode(client: httpx2.Client, **change: Any) -> list[Any]:
    return events(client.post("/v1/chat/completions", json=OPENCODE | change, headers=OPENCODE_HEADERS))


def test_opencodes_first_request_is_answered_as_it_is(client: httpx2.Client) -> None:
    found = opencode(client, max_tokens=4)
    assert found[-1]["usage"]["completion_tokens"] <= 4
    assert found[-2]["choices"][0]["finish_reason"] in ("length", "stop", "tool_calls")


def test_opencodes_turn_with_a_tool_goes_round(client: httpx2.Client) -> None:
    function = {"name": "bash", "parameters": closed({"command": {"const": COMMAND}}, "command")}
    forced = {"type": "function", "function": {"name": "bash"}}
    first = opencode(client, tools=[{"type": "function", "function": function}], tool_choice=forced)
    said = [choice for event in first for choice in event["choices"]]
    calls = [call for choice in said for call in choice["delta"].get("tool_calls", ())]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert (calls[0]["function"]["name"], json.loads(arguments)) == ("bash", {"command": COMMAND})
    assert said[-1]["finish_reason"] == "tool_calls"
    whole = {"id": calls[0]["id"], "type": "function", "function": {"name": "bash", "arguments": arguments}}
    turns = [
        *OPENCODE["messages"],
        {"role": "assistant", "content": "", "tool_calls": [whole]},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "pineapple\n"},
    ]
    assert opencode(client, messages=turns, max_tokens=4)[-1]["usage"]["completion_tokens"] == 4


def test_opencodes_whole_numbers_keep_the_tighter_of_two_bounds(client: httpx2.Client) -> None:
    function = {"name": "read", "parameters": closed({"offset": POSITIVE}, "offset")}
    forced = {"tools": [{"type": "function", "function": function}], "tool_choice": "required", "temperature": 0}
    reply = client.post("/v1/chat/completions", json=OPENCODE | forced | {"stream": False, "max_tokens": 60})
    (call, *_) = reply.json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["offset"] >= 1
