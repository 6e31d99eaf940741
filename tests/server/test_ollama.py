"""Ollama's interface through its real client, with the replies of the other interfaces; and LM Studio's lists."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import ollama
import pytest
from pydantic import BaseModel

from app.server import sockets
from app.server.command import ollama_note
from app.server.ollama.chat import OllamaChatRequest
from app.server.sockets import AddressError, Addresses, check, listening
from runtime.engine import Engine, Message, Sampling
from tests.support.serving import READ_FILE, Running, open_plain, running, saying
from tests.support.waiting import PATIENCE

QUESTION = "What does os.path.join do?"
GREEDY = {"temperature": 0, "num_predict": 12}
ASKED: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with closing(open_plain(None)) as found:
        yield found


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(open_plain, aliases=("demo", "my-model")) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> ollama.Client:
    return ollama.Client(here.url, timeout=PATIENCE)


@pytest.fixture(scope="module")
def plain(engine: Engine) -> str:
    chunks = engine.reply([Message("user", QUESTION)], Sampling(temperature=0), 12)
    return "".join(chunk.text for chunk in chunks)


def lines(reply: httpx2.Response) -> list[Any]:
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_chat_says_what_the_engine_says_whole_and_streamed(client: ollama.Client, plain: str) -> None:
    whole = client.chat("demo", ASKED, options=GREEDY)
    parts = list(client.chat("demo", ASKED, options=GREEDY, stream=True))
    assert whole.message.content == "".join(each.message.content or "" for each in parts) == plain
    assert [each.done for each in parts] == [False] * (len(parts) - 1) + [True]
    for last in (whole, parts[-1]):
        assert (last.done_reason, last.eval_count) == ("length", 12)
        assert last.prompt_eval_count == whole.prompt_eval_count
        assert 0 < (last.eval_duration or 0) < (last.total_duration or 0)


def test_a_stream_is_lines_of_json_and_the_usual(here: Running) -> None:
    reply = here.client().post("/api/chat", json={"model": "x:7b", "messages": ASKED, "options": GREEDY})
    assert reply.headers["content-type"].startswith("application/x-ndjson")
    assert all(each["model"] == "x:7b" and each["created_at"].endswith("Z") for each in lines(reply))


def test_a_seed_gives_the_text_that_it_gives_elsewhere(client: ollama.Client, here: Running) -> None:
    settings = {"temperature": 0.8, "seed": 3, "top_k": 20, "repeat_penalty": 1.1, "num_predict": 16, "num_ctx": 99}
    ours = client.chat("demo", ASKED, options=settings).message.content
    body = {"messages": ASKED, "temperature": 0.8, "seed": 3, "top_k": 20, "repeat_penalty": 1.1, "max_tokens": 16}
    theirs = here.client().post("/v1/chat/completions", json=body).json()
    assert ours == theirs["choices"][0]["message"]["content"]


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_text_and_whole_calls_are_told_apart(
    client: ollama.Client, here: Running, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    call = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.txt"}}\n</tool_call>'
    saying(here, monkeypatch)(f"<think>A file.</think>\n\nI look.{call}{call}")
    found: Any = client.chat("demo", ASKED, tools=[READ_FILE], stream=stream)
    said = [each.message for each in (found if stream else [found])]
    assert "".join(each.thinking or "" for each in said) == "A file."
    assert "".join(each.content or "" for each in said).strip() == "I look."
    (calls,) = [each.tool_calls for each in said if each.tool_calls]
    assert [(each.function.name, each.function.arguments) for each in calls] == [("read_file", {"path": "a.txt"})] * 2


def test_tools_of_other_types_are_left_out() -> None:
    tools = [{"type": "web_search"}, READ_FILE]
    engine: Any = None  # needs none
    offered = OllamaChatRequest.model_validate({"messages": ASKED, "tools": tools}).asked(engine).tool_set()
    assert offered is not None
    assert [function.name for function in offered.functions] == ["read_file"]


def test_results_of_tools_are_read(client: ollama.Client) -> None:
    call = {"function": {"name": "read_file", "arguments": {"path": "a.txt"}}}
    past = [
        *ASKED,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "read_file", "content": "Hello"},
    ]
    with_result = client.chat("demo", past, options=GREEDY)
    assert (with_result.prompt_eval_count or 0) > (client.chat("demo", ASKED, options=GREEDY).prompt_eval_count or 0)


def test_a_schema_is_followed(client: ollama.Client) -> None:
    class Answer(BaseModel):
        yes: bool
        size: int

    schema = Answer.model_json_schema()
    schema["properties"]["size"] |= {"minimum": 0, "maximum": 99}
    reply = client.chat("demo", ASKED, format=schema, options={"temperature": 0})
    assert 0 <= Answer.model_validate_json(reply.message.content or "").size <= 99
    reply = client.generate("demo", QUESTION, format="json", options={"temperature": 0, "num_predict": 30})
    assert reply.response.lstrip().startswith(("{", "["))


def test_generate_asks_as_a_chat_does_and_raw_goes_on(client: ollama.Client, engine: Engine, plain: str) -> None:
    assert client.generate("demo", QUESTION, options=GREEDY).response == plain
    parts: Any = client.generate("demo", "import os\n", raw=True, options=GREEDY, stream=True)
    raw = "".join(each.text for each in engine.reply("import os\n", Sampling(temperature=0), 12))
    assert "".join(each.response for each in parts) == raw
    longer = client.generate("demo", QUESTION, system="Be brief.", options=GREEDY)
    assert (longer.prompt_eval_count or 0) > 4


def test_a_suffix_needs_a_model_that_fills_in(client: ollama.Client, engine: Engine) -> None:
    assert not engine.facts.can_infill
    with pytest.raises(ollama.ResponseError) as refused:
        client.generate("demo", "def f(", suffix="return 1")
    assert refused.value.status_code == 400
    assert "insert" not in (client.show("demo").capabilities or [])


def test_texts_become_vectors(client: ollama.Client, here: Running) -> None:
    found = client.embed("demo", ["rain", "sun"])
    assert len(found.embeddings) == 2
    assert math.isclose(sum(x * x for x in found.embeddings[0]), 1, abs_tol=1e-5)
    assert (found.prompt_eval_count or 0) >= 2
    older = client.embeddings("demo", "rain").embedding
    assert list(older) == list(found.embeddings[0])
    long = "word " * 5000
    assert len(client.embed("demo", long).embeddings) == 1
    with pytest.raises(ollama.ResponseError, match="maximum context length"):
        client.embed("demo", long, truncate=False)


def test_the_model_is_told_by_its_name_and_its_aliases(client: ollama.Client, engine: Engine) -> None:
    (listed,) = client.list().models
    (loaded,) = client.ps().models
    assert listed.model == loaded.model == "demo:latest"
    assert (loaded.context_length, loaded.size) == (engine.facts.n_ctx, engine.facts.n_bytes)
    assert listed.details
    assert (listed.details.format, listed.details.parameter_size) == ("gguf", "21.05M")
    for name in ("demo", "demo:latest", "my-model"):
        shown = client.show(name)
        assert shown.modelinfo
        assert shown.details
        family = shown.modelinfo["general.architecture"]
        assert family == shown.details.family
        assert shown.modelinfo[f"{family}.context_length"] == engine.facts.n_ctx
        assert {"completion", "tools"} <= set(shown.capabilities or ())
    with pytest.raises(ollama.ResponseError) as refused:
        client.show("other")
    assert refused.value.status_code == 404


def test_the_version_is_three_numbers(here: Running) -> None:
    found = here.client().get("/api/version").json()["version"].split(".")
    assert [part.isdecimal() for part in found] == [True] * 3


@pytest.mark.parametrize("body", [{"model": "x"}, {"model": "x", "keep_alive": 0}, {"messages": [], "prompt": ""}])
@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_a_request_without_a_prompt_loads(here: Running, path: str, body: dict[str, Any]) -> None:
    (found,) = lines(here.client().post(path, json=body))
    assert (found["done"], found["done_reason"]) == (True, "load")


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["AA=="]}]}, "image input"),
        ("/api/chat", {"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ("/api/chat", {"messages": ASKED, "options": {"temperature": "hot"}}, "temperature"),
        ("/api/chat", {"messages": ASKED, "format": "xml"}, "format"),
        ("/api/generate", {"prompt": "x", "template": "{{ .Prompt }}"}, "send the whole prompt with raw"),
        ("/api/generate", {"prompt": "word " * 5000, "raw": True}, "maximum context length"),
        ("/api/pull", {"model": "x"}, "slipstream models pull"),
    ],
)
def test_a_refusal_is_a_sentence_in_ollamas_form(here: Running, path: str, body: dict[str, Any], says: str) -> None:
    reply = here.client().post(path, json=body)
    assert 400 <= reply.status_code < 500
    assert says in reply.json()["error"]


def test_lm_studios_lists_have_state_and_context(here: Running, engine: Engine) -> None:
    (older,) = here.client().get("/api/v0/models").json()["data"]
    assert (older["id"], older["state"], older["loaded_context_length"]) == ("demo", "loaded", engine.facts.n_ctx)
    (newer,) = here.client().get("/api/v1/models").json()["models"]
    assert (newer["key"], newer["quantization"]["name"]) == ("demo", older["quantization"])
    assert newer["loaded_instances"] == [{"id": "demo", "config": {"context_length": engine.facts.n_ctx}}]


def test_ollamas_port_is_listened_on_where_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sockets, "OLLAMA_PORT", port)
        monkeypatch.setattr("app.server.command.OLLAMA_PORT", port)
        wanted = Addresses("127.0.0.1", 0, None, ollama=True)
        with listening(wanted) as found:
            assert len(found) == 1
        (note,) = ollama_note(wanted, ["http://127.0.0.1:8012/v1"])
        assert note.endswith("give its clients the address http://127.0.0.1:8012")
    with listening(wanted) as found:
        assert found[1].getsockname()[1] == port
    assert not list(ollama_note(wanted, ["http://127.0.0.1:8012/v1", f"http://127.0.0.1:{port}/v1"]))


def test_ollamas_port_is_not_opened_to_others_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(AddressError):
        check(Addresses("0.0.0.0", None, tmp_path / "socket", ollama=True), "")
