"""Requests that are right for other servers: each kind of part, item and tool is read, left out or refused by name."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from pydantic import RootModel, ValidationError

from app.server import left_out
from app.server.anthropic.messages import MessagesRequest
from app.server.application import ENDPOINTS
from app.server.endpoint import Endpoint
from app.server.openai.chat import ChatRequest
from app.server.openai.responses import ResponsesRequest
from tests.support.serving import READ_FILE, open_plain, running
from tests.support.waiting import PATIENCE

HI = {"role": "user", "content": "Hi"}
SO = {"type": "text", "text": "So"}
TEXT_SOURCE = {"type": "text", "media_type": "text/plain", "data": "Words"}

# Blocks of Anthropic's server about tools and models of its own
FOREIGN_BLOCKS: list[dict[str, Any]] = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]},
    {"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "web_fetch_result"}},
    {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {"stdout": "x"}},
    {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {"stdout": "x"}},
    {"type": "text_editor_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {}},
    {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {}},
    {"type": "advisor_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "advisor_result", "text": "x"}},
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "x", "server_name": "x", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": "x", "is_error": False},
    {"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": []},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "compaction", "content": None},
    {"type": "fallback", "from": {"model": "x"}, "to": {"model": "y"}},
    {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "read_file"}},
]
SERVER_TOOLS = [
    "web_search_20250305", "web_fetch_20250910", "code_execution_20250522", "bash_20250124", "text_editor_20250728",
    "memory_20250818", "computer_20250124", "tool_search_tool_regex", "mcp_toolset", "advisor_20260301",
]  # fmt: skip
FOREIGN_ITEMS = [
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "compaction", "computer_call",
    "computer_call_output", "custom_tool_call", "custom_tool_call_output", "file_search_call", "image_generation_call",
    "local_shell_call", "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call",
    "mcp_list_tools", "program", "program_output", "shell_call", "shell_call_output", "tool_search_call",
    "web_search_call", "what_comes_next_year",
]  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.fixture(autouse=True)
def forgotten() -> None:
    left_out.log_left_out.cache_clear()


def texts(*messages: Any, **more: Any) -> list[str]:
    request = MessagesRequest.model_validate({"model": "c", "max_tokens": 1, "messages": [*messages], **more})
    return [message.text for message in request.as_chat.messages]


def item_texts(*items: Any) -> list[str]:
    return [message.text for message in ResponsesRequest.model_validate({"input": [*items]}).chat.messages]


@pytest.mark.parametrize("block", FOREIGN_BLOCKS, ids=lambda block: block["type"])
def test_a_block_about_anthropics_own_tools_is_left_out(block: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert texts(HI, {"role": "assistant", "content": [block, SO]}, HI) == ["Hi", "So", "Hi"]
    assert texts(HI, {"role": "assistant", "content": [block]}, HI) == ["Hi", "Hi"]
    assert texts({"role": "user", "content": [SO, block]}) == ["So"]
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"blocks of type '{block['type']}'" in line


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "search_result", "title": "T", "source": "https://x", "content": [SO]}, "T\nhttps://x\nSo"),
        ({"type": "document", "title": "T", "context": None, "source": TEXT_SOURCE}, "T\nWords"),
        ({"type": "document", "title": None, "source": {"type": "content", "content": "Words"}}, "Words"),
        ({"type": "compaction", "content": "A summary"}, "A summary"),
    ],
)
def test_a_block_with_a_text_of_its_own_is_that_text(block: Any, text: str) -> None:
    assert texts({"role": "user", "content": [block, SO]}) == [f"{text}\nSo"]
    assert texts({"role": "user", "content": [block]}, {"role": "assistant", "content": [SO]}, HI)[0] == text


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "x"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {}}},
    ],
)
def test_a_block_that_changes_the_question_is_refused(block: Any) -> None:
    with pytest.raises(ValidationError, match=r"content\.0"):
        texts({"role": "user", "content": [block, SO]})


@pytest.mark.parametrize("kind", SERVER_TOOLS)
def test_a_tool_of_anthropics_own_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    own = {"name": "f", "input_schema": {"type": "object"}, "type": None, "cache_control": None}
    tools = [{"type": kind, "name": "x", "cache_control": None}, own]
    request = MessagesRequest.model_validate({"max_tokens": 1, "messages": [HI], "tools": tools})
    offered = request.as_chat.tool_set()
    assert offered is not None
    assert [function.name for function in offered.functions] == ["f"]
    assert f"tools of type '{kind}'" in caplog.text


def test_a_session_with_anthropics_tools_goes_on_here(client: httpx2.Client) -> None:
    past = [HI, {"role": "assistant", "content": [*FOREIGN_BLOCKS, SO]}, HI]
    tools = [{"type": kind, "name": "x"} for kind in SERVER_TOOLS]
    reply = client.post("/v1/messages", json={"model": "c", "max_tokens": 3, "messages": past, "tools": tools})
    assert (reply.status_code, reply.json()["usage"]["output_tokens"]) == (200, 3), reply.text


@pytest.mark.parametrize("kind", FOREIGN_ITEMS)
def test_an_item_about_openais_own_tools_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    assert item_texts(HI, {"type": kind, "id": None, "call_id": "c", "output": "x"}, HI) == ["Hi", "Hi"]
    assert f"items of type '{kind}'" in caplog.text


def test_tools_that_come_with_an_item_are_offered() -> None:
    flat = {"type": "function"} | READ_FILE["function"]
    hosted = {"type": "web_search"}
    items = [HI, {"type": "additional_tools", "id": None, "role": "developer", "tools": [flat, hosted]}]
    offered = ResponsesRequest.model_validate({"input": items, "tools": [hosted, flat]}).chat.tool_set()
    assert offered is not None
    assert [function.name for function in offered.functions] == ["read_file"]


def test_items_as_the_library_dumps_them_are_read(client: httpx2.Client) -> None:
    library = openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", timeout=PATIENCE)
    tools: Any = [{"type": "function", "parameters": None, "strict": None, "name": "f", "description": None}]
    first = library.responses.create(model="demo", input="Hi", max_output_tokens=16, tools=tools)
    nulls = dict.fromkeys(("status", "phase", "namespace", "caller"))
    again: Any = [*(item.model_dump() | nulls for item in first.output), {"type": None, **HI}]
    assert library.responses.create(model="demo", input=again, max_output_tokens=16).output
    message = library.chat.completions.create(model="demo", messages=[HI], max_tokens=2).choices[0].message  # type: ignore[list-item]
    said: Any = [HI, message.model_dump(), HI]
    assert library.chat.completions.create(model="demo", messages=said, max_tokens=2).choices
    output: Any = {"type": "function_call_output", "id": None, "call_id": "c", "output": "x", "status": None}
    called: Any = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": None, "status": None}
    for each in (output, output | {"output": None}):
        assert library.responses.create(model="demo", input=[HI, called, each], max_output_tokens=16).output  # type: ignore[list-item]


def test_a_reference_needs_no_type(client: httpx2.Client) -> None:
    kept = client.post("/v1/responses", json={"input": "Hi", "max_output_tokens": 16}).json()["output"][0]["id"]
    for reference in ({"id": kept}, {"id": kept, "type": None}, {"id": kept, "type": "item_reference"}):
        reply = client.post("/v1/responses", json={"input": [reference, HI], "max_output_tokens": 16})
        assert reply.status_code == 200, reply.text


ASKING = [endpoint for endpoint in ENDPOINTS if endpoint.request and not issubclass(endpoint.request, RootModel)]
NEEDED: dict[str, Any] = {
    "messages": [HI], "prompt": "Hi", "input": "Hi", "max_tokens": 2, "content": "x", "tokens": [1],
    "model": "demo", "input_prefix": "a", "input_suffix": "b", "query": "x", "documents": ["x"], "filename": "x",
}  # fmt: skip
ONE_OF = {"/embeddings": "input", "/embedding": "input", "/rerank": "documents", "/reranking": "documents"}


@pytest.mark.parametrize("endpoint", ASKING, ids=lambda endpoint: endpoint.path)
def test_null_is_the_same_as_absent(endpoint: Endpoint) -> None:
    kind = endpoint.request
    assert kind is not None
    named = {field.alias or name: field for name, field in kind.model_fields.items()}
    required = {name: NEEDED[name] for name, field in named.items() if field.is_required()}
    if one := ONE_OF.get(endpoint.path):  # it may be missing where another field is there
        required[one] = NEEDED[one]
    nulls = dict.fromkeys(named)
    assert kind.model_validate_json(json.dumps(nulls | required)) == kind.model_validate_json(json.dumps(required))


def test_calls_in_openais_other_forms_are_read() -> None:
    custom = {"id": "1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    old = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        HI,
        {"role": "assistant", "tool_calls": [custom]},
        old,
        {"role": "function", "name": "f", "content": "x"},
    ]
    found = ChatRequest.model_validate({"messages": messages}).messages
    calls = [(call.function.name, call.arguments()) for message in found for call in message.tool_calls or ()]
    assert calls == [("patch", {"input": "*** Begin"}), ("f", {"a": 1})]


def test_a_choice_of_tools_may_name_others() -> None:
    some = [{"type": "custom", "custom": {"name": "patch"}}, {"type": "function", "function": {"name": "read_file"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": some}}
    offered = ChatRequest.model_validate({"messages": [HI], "tools": [READ_FILE], "tool_choice": choice}).tool_set()
    assert offered is not None
    flat = {"type": "function"} | READ_FILE["function"]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "x"}, flat]}
    offered = ResponsesRequest.model_validate({"input": "Hi", "tools": [flat], "tool_choice": choice}).chat.tool_set()
    assert offered is not None


def test_a_custom_tool_is_left_out_and_a_function_needs_no_type(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"type": "custom", "custom": {"name": "patch"}}, {"type": None, "function": {"name": "f"}}]
    offered = ChatRequest.model_validate({"messages": [HI], "tools": tools}).tool_set()
    assert offered is not None
    assert [function.name for function in offered.functions] == ["f"]
    assert "tools of type 'custom'" in caplog.text


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/api/chat", {"messages": [HI], "stream": False, "options": {"num_predict": 1, "seed": None, "stop": None}}),
        ("/api/generate", {"prompt": "Hi", "stream": False, "context": None, "options": {"num_predict": 1}}),
        ("/api/embed", {"input": "Hi", "options": None}),
        ("/api/embeddings", {"prompt": "Hi"}),
    ],
)
def test_ollamas_model_may_be_null(client: httpx2.Client, path: str, more: Any) -> None:
    reply = client.post(path, json={"model": None, "keep_alive": None, **more})
    assert reply.status_code == 200, reply.text


def test_nothing_to_embed_is_no_error(client: httpx2.Client) -> None:
    for nothing in ({}, {"input": None}, {"input": []}):
        assert client.post("/api/embed", json={"model": "demo", **nothing}).json()["embeddings"] == []
    for nothing in ({}, {"prompt": None}, {"prompt": ""}):
        assert client.post("/api/embeddings", json={"model": "demo", **nothing}).json() == {"embedding": []}
