"""Halves of surrogate pairs in JSON, which a text cut in the middle ends with: read as replacement characters."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
import pytest

from app.server.fields import checked
from app.server.openai.chat import ChatRequest
from tests.support.serving import open_plain, running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


HALVES = rb'"\ud83d", "a\ude00b", "\ud83d\ud83d\ude00", "\\ud83d", "\ud83d\\u0041", "\u0041\ud83d\n"'
WHOLE = ["\ufffd", "a\ufffdb", "\ufffd\U0001f600", r"\ud83d", "\ufffd" + r"\u0041", "A\ufffd\n"]


def test_half_a_surrogate_pair_is_a_replacement_character() -> None:
    body = bytearray(b'{"messages": [{"role": "user", "content": "Hi"}], "stop": [%s]}' % HALVES)
    assert checked(body, ChatRequest, 100).stop == WHOLE


def test_half_a_pair_may_stand_anywhere(client: httpx2.Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"\ud83d": "\ude00"})}}
    messages = [
        {"role": "user", "content": "cut \ud83d"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "\ude00 cut"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": "\ud83d"}}]
    body = json.dumps({"messages": messages, "tools": tools, "max_tokens": 2}).encode()
    headers = {"content-type": "application/json"}
    reply = client.post("/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 200, reply.text
    prompt = client.post("/apply-template", content=body, headers=headers).json()["prompt"]
    assert prompt.count("\ufffd") == 5
