"""Tools: how a chat template is given them, the turn after a call, and calls found in a reply's text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.server.openai.reply_reader import ToolCallParser, merge_tool_calls
from app.server.openai.tools import FunctionDefinition, ToolSet
from runtime.conversation.calls import HERMES, BareCalls, CallParser, Function, form_of
from runtime.conversation.calls.known import BEGIN, END
from runtime.conversation.calls.past import written_calls
from runtime.engine import Grammar, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import find_pair
from tests.conftest import OpenEngine
from tests.support.call_templates import FORMS, template
from tests.support.coder import write_coder
from tests.support.serving import (
    READ_FILE,
    events,
    open_usual,
    running,
)


@pytest.fixture(scope="module")
def coder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coder(tmp_path_factory.mktemp("models") / "coder.gguf")


@pytest.fixture(scope="module")
def demo() -> Iterator[httpx2.Client]:
    with running(open_usual) as here:
        yield here.client()


def test_tools_reach_a_template_that_knows_them(coder: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"city": "Rome"}'}}
    engine = LoadedEngine(find_pair(str(coder), {}), Options(threads=1))
    assert '"read_file"' in engine.render([Message("user", "hi")], [READ_FILE]).text
    with running(lambda on_progress: EngineProcess(engine.pair, Options(threads=1), on_progress)) as here:
        client = here.client()
        turns = [
            {"role": "user", "content": "<hi>"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Sun"},
        ]
        assert (
            client.post("/apply-template", json={"messages": turns}).json()["prompt"]
            == "[user]<hi>[assistant]Rome[tool]Sun"
        )
        asked = {"messages": turns, "tools": [READ_FILE], "max_tokens": 1, "temperature": 0}
        n_tokens = client.post("/v1/chat/completions", json=asked).json()["usage"]["prompt_tokens"]
        told = READ_FILE | {"function": {key: value for key, value in READ_FILE["function"].items() if key != "strict"}}
        assert n_tokens == len(engine.tokenize(f"{json.dumps([told])}<tool_call>[user]<hi>[assistant]Rome[tool]Sun"))


@pytest.mark.parametrize("result", ["import os", [{"type": "text", "text": "import os"}]])
@pytest.mark.parametrize("said", [None, "", [{"type": "text", "text": "I look."}]])
def test_the_turn_after_a_call_is_as_agents_send_it(demo: httpx2.Client, said: Any, result: Any) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "index": 0,
        "function": {"name": "read_file", "arguments": '{"path": "a.py"}'},
    }
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "Read a.py", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": said, "tool_calls": [call], "reasoning_content": "A file."},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]
    found = events(
        demo.post(
            "/v1/chat/completions", json={"messages": turns, "tools": [READ_FILE], "stream": True, "max_tokens": 2}
        )
    )
    assert found[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    timings = found[-1]["timings"]
    assert timings["prompt_n"] + timings["cache_n"] > timings["predicted_n"]


@pytest.mark.parametrize("calls", [False, True])
def test_with_a_schema_a_reply_is_an_answer_or_a_call(open_demo: OpenEngine, calls: bool) -> None:
    engine = open_demo(threads=1)
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    tool = FunctionDefinition(name="read_file", parameters=READ_FILE["function"]["parameters"])
    grammar = ToolSet((tool,), required=False, parallel=False).grammar(Grammar("json_schema", json.dumps(schema)))
    braces = [token for token in range(engine.facts.n_vocab) if engine.token_bytes(token).startswith(b"{")]
    bias = tuple((token, -100.0 if calls else 100.0) for token in braces)
    sampling = Sampling(temperature=0.0, logit_bias=bias)
    said = engine.reply([Message("user", "Read a.py")], sampling, 60, grammar=grammar)
    text = "".join(chunk.text for chunk in said)
    assert text.startswith(BEGIN) if calls else json.loads(text)["n"] in (1, 2)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_calls_are_found_however_the_text_is_cut(size: int) -> None:
    text = 'So:\n<tool_call>\n{"name": "f", "arguments": {"a": {"b": "} <tool"}}}\n</tool_call>\n'
    text += '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>'
    calls, deltas = ToolCallParser(CallParser(HERMES, [Function("f"), Function("g")])), []
    for at in range(0, len(text), size):
        deltas += list(calls.feed(text[at : at + size]))
    deltas += list(calls.finish(is_cut=False))
    assert "".join(delta.get("content", "") for delta in deltas) == "So:\n"
    found = [call["function"] for call in merge_tool_calls(deltas)]
    assert [(call["name"], json.loads(call["arguments"])) for call in found] == [
        ("f", {"a": {"b": "} <tool"}}),
        ("g", {}),
    ]


def test_a_tool_call_is_the_same_however_its_text_is_cut() -> None:
    text = BEGIN + '\n{"name": "f", "arguments": {"a": 1}}\n' + END

    def read(*pieces: str) -> list[object]:
        calls = ToolCallParser(CallParser(HERMES, [Function("f"), Function("g")]))
        deltas = [delta for piece in pieces for delta in calls.feed(piece)]
        return [call["function"] for call in merge_tool_calls([*deltas, *calls.finish(is_cut=False)])]

    assert all(
        read(text[:i], text[i:]) == read(text) == [{"name": "f", "arguments": '{"a": 1}'}] for i in range(len(text))
    )


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_tags_of_tools_count_in_text_and_not_in_arguments(size: int) -> None:
    form, bare = form_of(template(FORMS["tags"])), '<tools>\n{"name": "g", "arguments": {}}\n</tools>'
    assert form is not None
    own = written_calls(form, [{"function": {"name": "f", "arguments": {"a": f"{bare}\nmore"}}}])
    functions = [Function("f", {"properties": {"a": {"type": "string"}}}), Function("g")]
    for text, names in ((f"So: {own}", ["f"]), (f"So: {bare}", ["g"])):
        calls = ToolCallParser(CallParser(form, functions), BareCalls(functions, True, form.trigger))
        deltas = [delta for at in range(0, len(text), size) for delta in calls.feed(text[at : at + size])]
        deltas += calls.finish(is_cut=False)
        assert "".join(delta.get("content", "") for delta in deltas).strip() == "So:"
        assert [call["function"]["name"] for call in merge_tool_calls(deltas)] == names


def test_a_reply_that_is_cut_shows_no_markup() -> None:
    text = 'So:\n<tool_call>\n{"name": "f", "arguments": {"a": "}"}}\n</tool_call>\n<tool_call>\n{"name": "g", "argu'
    for at in range(len(text)):
        calls = ToolCallParser(CallParser(HERMES, [Function("f"), Function("g")]))
        deltas = [*calls.feed(text[:at]), *calls.finish(is_cut=True)]
        assert "So:\n".startswith("".join(delta.get("content", "") for delta in deltas))
        found = merge_tool_calls(deltas)
        assert len(found) == calls.n_calls <= 1
        assert all('{"a": "}"}'.startswith(call["function"]["arguments"]) for call in found)


def test_a_reply_that_is_whole_may_end_as_a_mark_begins() -> None:
    calls = ToolCallParser(CallParser(HERMES, [Function("f"), Function("g")]))
    assert [*calls.feed("a <"), *calls.finish(is_cut=False)] == [{"content": "a "}, {"content": "<"}]


FUNCTION = {"type": "function", **READ_FILE["function"]}
ASKED = "Read a.py"
TOOL = {"name": "read_file", "input_schema": READ_FILE["function"]["parameters"]}
CUT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": ASKED}], "tools": [READ_FILE], "tool_choice": "required"
    },
    "/v1/responses": {"input": ASKED, "tools": [FUNCTION], "tool_choice": "required"},
    "/v1/messages": {
        "messages": [{"role": "user", "content": ASKED}], "tools": [TOOL], "tool_choice": {"type": "any"}
    },
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", CUT)
def test_a_call_that_is_cut_short_anywhere_shows_no_markup(demo: httpx2.Client, path: str, stream: bool) -> None:
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    for n in (1, 2, 3, 4, 6, 8, 12, 20, 28, 30, 32, 34, 36):
        told = demo.post(path, json=CUT[path] | {limit: n, "stream": stream, "temperature": 0}).text
        assert "<" not in told
        assert "tool_call>" not in told
