"""The newer interface through the real client: the text is a chat completion's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.serving import open_usual, running
from tests.support.waiting import PATIENCE

QUESTION = "What does os.path.join do?"


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with (
        running(open_usual) as here,
        openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found,
    ):
        yield found


def chat(client: openai.OpenAI, max_tokens: int, system: str = "") -> str:
    messages: Any = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": QUESTION}]
    return (
        client.chat.completions.create(model="demo", messages=messages, max_tokens=max_tokens, temperature=0)
        .choices[0]
        .message.content
        or ""
    )


def test_the_text_is_a_chats(client: openai.OpenAI) -> None:
    reply = client.responses.create(
        model="demo", input=QUESTION, instructions="Be brief.", max_output_tokens=12, temperature=0
    )
    assert reply.output_text == chat(client, 12, "Be brief.")
    assert (reply.status, reply.incomplete_details and reply.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert reply.usage is not None
    assert reply.usage.output_tokens == 12


def test_a_stream_says_the_same_in_order(client: openai.OpenAI) -> None:
    turns: Any = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    events = list(client.responses.create(model="demo", input=turns, temperature=0, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == chat(client, 500)
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == chat(client, 500)


def test_a_schema_holds(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    wanted: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    assert json.loads(client.responses.create(model="demo", input=QUESTION, text=wanted).output_text)["n"] in (1, 2)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input"),
        ({"input": [{"type": "telepathy"}]}, "input"),
        ({"input": [{"type": "telepathy", "role": "user", "content": "hi"}]}, "input.0"),
        ({"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]}, "input.1"),
        ({"input": [{"type": "configuration_update", "reasoning": {"effort": "low"}}]}, "input.0"),
        ({"input": [3]}, "input.0"),
        ({"input": [{"role": "wizard", "content": "hi"}]}, "input.0.role"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input.0.arguments"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_name(client: openai.OpenAI, more: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": "demo", "input": QUESTION, **more})
    assert caught.value.param == param
