"""Tools, reasoning and kept conversations of the newer interface, through the real client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from app.server.openai.messages import text_part
from app.server.openai.responses import MAX_AGE, MAX_NUMBER, KeptResponses
from app.server.openai.responses_input import InputMessage
from tests.support.serving import READ_FILE, Running, open_usual, running, saying
from tests.support.waiting import PATIENCE

TOOL: Any = {"type": "function"} | READ_FILE["function"]
QUESTION = "What is in a.py?"
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>'
BOTH = [
    "response.created", "response.in_progress",
    "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
    "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
    "response.output_item.added", "response.content_part.added", "response.output_text.delta",
    "response.output_text.done", "response.content_part.done", "response.output_item.done",
    "response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done",
    "response.output_item.done", "response.completed",
]  # fmt: skip


class Path(BaseModel):
    """An answer with a schema."""

    path: str


class Flag(BaseModel):
    """What a small model cannot write without end."""

    is_open: bool


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(open_usual) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as found:
        yield found


@pytest.fixture
def says(here: Running, monkeypatch: pytest.MonkeyPatch) -> Any:
    return saying(here, monkeypatch)


def ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.responses.create(**{"model": "demo", "input": QUESTION, "temperature": 0, **more})


def test_a_call_is_made_and_its_output_sent_back(client: openai.OpenAI) -> None:
    first = ask(client, tools=[TOOL], tool_choice="required", store=False)
    (call,) = first.output
    assert (first.status, call.type, call.name) == ("completed", "function_call", "read_file")
    assert list(json.loads(call.arguments)) == ["path"]
    assert (call.id[:3], call.call_id[:5], first.id[:5]) == ("fc_", "call_", "resp_")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "import os"}
    turns = [{"role": "user", "content": QUESTION}, call, output]
    second = ask(client, input=turns, tools=[TOOL], max_output_tokens=5)
    assert second.output[0].type == "message"
    wanted: Any = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "read_file", "arguments": call.arguments}}
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "import os"},
    ]  # fmt: skip
    chat = client.chat.completions.create(model="demo", messages=wanted, tools=[READ_FILE], max_tokens=5, temperature=0)
    assert second.output_text == chat.choices[0].message.content
    assert chat.usage
    assert second.usage.input_tokens == chat.usage.prompt_tokens


def test_the_clients_own_stream_reads_a_forced_call(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "name": "read_file"}
    with client.responses.stream(model="demo", input=QUESTION, tools=[TOOL], tool_choice=choice) as stream:
        events = list(stream)
        (call,) = stream.get_final_response().output
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert call.type == "function_call"
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments
    assert events[0].type == "response.created"
    assert [tool.type for tool in events[0].response.tools] == ["function"]


def test_reasoning_text_and_calls_come_in_openais_order(client: openai.OpenAI, says: Any) -> None:
    says(f"<think>A file.</think>\n\nI look.{CALL}")
    with client.responses.stream(model="demo", input=QUESTION, tools=[TOOL]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = [event.type for event in events]
    assert [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before] == BOTH
    thought, message, call = final.output
    assert (thought.type, message.type, call.type) == ("reasoning", "message", "function_call")
    assert [thought.id[:3], message.id[:4]] == ["rs_", "msg_"]
    assert thought.content
    assert thought.content[0].text == "A file."
    assert final.output_text == "I look."
    assert json.loads(call.arguments) == {"path": "a.py"}
    assert final.usage
    assert final.usage.output_tokens_details.reasoning_tokens > 0


def test_a_whole_reply_has_the_streams_items(client: openai.OpenAI, says: Any) -> None:
    says(f"<think>A file.</think>I look.{CALL}\n{CALL}")
    reply = ask(client, tools=[TOOL])
    assert [item.type for item in reply.output] == ["reasoning", "message", "function_call", "function_call"]
    assert len({item.id for item in reply.output}) == 4
    assert {item.status for item in reply.output} == {"completed"}


def test_what_fails_on_the_way_fails_the_response(client: openai.OpenAI, says: Any) -> None:
    says("I look.", RuntimeError("secret"))
    *_, last = ask(client, stream=True)
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert "secret" not in last.response.error.message


def test_a_conversation_goes_on_by_its_id(client: openai.OpenAI) -> None:
    first = ask(client, tools=[TOOL], tool_choice="required", instructions="Be brief.", metadata={"a": "b"})
    output: Any = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "import os"}
    by_id = ask(client, input=[output], previous_response_id=first.id, max_output_tokens=5)
    whole = ask(client, input=[{"role": "user", "content": QUESTION}, *first.output, output], max_output_tokens=5)
    assert by_id.output_text == whole.output_text
    assert by_id.usage.input_tokens == whole.usage.input_tokens
    assert by_id.previous_response_id == first.id
    third = ask(client, input="And?", previous_response_id=by_id.id, max_output_tokens=1)
    assert third.usage.input_tokens > by_id.usage.input_tokens
    found = client.responses.retrieve(first.id)
    assert (found.output, found.metadata) == (first.output, {"a": "b"})
    reference: Any = [{"role": "user", "content": QUESTION}, {"type": "item_reference", "id": first.output[0].id}]
    assert ask(client, input=[*reference, output], max_output_tokens=5).output_text == whole.output_text


def test_nothing_is_kept_of_what_should_not_be(client: openai.OpenAI) -> None:
    gone = ask(client, store=False, max_output_tokens=1)
    assert gone.store is False
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, previous_response_id=gone.id)
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(gone.id)


def test_agents_may_offer_tools_that_only_openai_runs(client: openai.OpenAI) -> None:
    """As Codex does; what such tools left in a conversation is no obstacle either."""
    hosted: Any = [{"type": "web_search", "external_web_access": False}, {"type": "local_shell"}, TOOL]
    turns: Any = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": '{"path": "a.py"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "x = 1"}]},
    ]
    more = {"instructions": "You are a coding agent.", "tool_choice": "auto", "parallel_tool_calls": False}
    codex = {"reasoning": None, "include": [], "prompt_cache_key": "k", "store": False, "stream": True}
    *_, last = ask(client, input=turns, tools=hosted, max_output_tokens=3, **more, **codex)
    assert last.type in ("response.incomplete", "response.completed")
    assert [tool.type for tool in last.response.tools] == ["function"]
    assert last.response.usage.input_tokens_details.cached_tokens >= 0


def test_an_answer_may_have_a_schema_and_tools_as_well(client: openai.OpenAI) -> None:
    reply = client.responses.parse(model="demo", input=QUESTION, text_format=Path, tools=[TOOL], temperature=0)
    (item,) = reply.output
    if item.type == "function_call":
        assert list(json.loads(item.arguments)) == ["path"]
    else:
        assert isinstance(reply.output_parsed, Path)
    with client.responses.stream(model="demo", input=QUESTION, text_format=Flag, temperature=0) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Flag)


def test_tokens_are_counted_in_advance(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="demo", input=QUESTION, tools=[TOOL])
    reply = ask(client, tools=[TOOL], max_output_tokens=1)
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", reply.usage.input_tokens)


def test_kept_responses_are_bounded_by_number_and_age() -> None:
    now = 0.0
    kept = KeptResponses(lambda: now)
    items = [InputMessage(role="user", content=[text_part("hi")])]
    for i in range(MAX_NUMBER + 1):
        kept.keep(str(i), {}, items)
    assert kept.find("0") is None
    assert kept.find("1")
    now = MAX_AGE + 1
    assert kept.find("1") is None
