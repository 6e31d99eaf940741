"""Another server's model as an engine: our own server and others on real sockets, asked from the command line's door,
through our server, and by the chat.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from app.cli import choices
from app.models.seeking import opener
from runtime.core.backend import SERVERS
from runtime.core.errors import ContextError, RegistryError, SettingsError, SlipstreamError
from runtime.engine import Grammar, Ids, Infill, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import find_pair, load_registry, local_pair, parse_registry
from runtime.upstream import server
from runtime.upstream.connection import UpstreamError
from runtime.upstream.engine import UpstreamEngine
from runtime.upstream.server import drafted_in
from tests.support.serving import READ_FILE, Running, running
from tests.support.tui import opened as chat_opened
from tests.support.tui import piloted
from tests.support.upstream import Answer, Elsewhere, as_events, as_json, delta, elsewhere, models
from tests.support.waiting import PATIENCE

QUESTION = [Message("user", "What does os.path.join do?")]
GREEDY = Sampling(temperature=0)
CHAT = "/v1/chat/completions"
LLAMA = {"owned_by": "llamacpp", "meta": {"n_ctx": 2048}}


def opened(here: Elsewhere, **more: Any) -> UpstreamEngine:
    return UpstreamEngine(find_pair(here.url, {}), Options(**more))


def text_of(engine: UpstreamEngine, prompt: Any = QUESTION, **more: Any) -> str:
    return "".join(chunk.text for chunk in engine.reply(prompt, GREEDY, **more))


@pytest.fixture(scope="module")
def ours() -> Iterator[Running]:
    """Our own server, with a drafter."""
    pair = load_registry()["demo"]
    with running(lambda report: LoadedEngine(pair, Options(drafters=("model",), fixed_k=3), report)) as here:
        yield here


@pytest.fixture
def engine(ours: Running) -> Iterator[UpstreamEngine]:
    with closing(UpstreamEngine(find_pair(ours.url, {}))) as engine:
        yield engine


def test_a_reply_is_the_servers_and_so_are_the_numbers_of_its_drafts(engine: UpstreamEngine) -> None:
    *chunks, last = engine.reply(QUESTION, GREEDY)
    text, stats = "".join(chunk.text for chunk in chunks), last.stats
    assert text.startswith("Join two or more pathname components")
    assert last.finish_reason == "stop"
    assert stats is not None
    assert stats.prompt_n == 18
    assert 0 < stats.draft_n_accepted <= stats.draft_n
    assert stats.n_passes == stats.predicted_n - stats.draft_n_accepted
    assert stats.predicted_per_second > 0
    assert stats.timings()["drafter"] == "elsewhere"
    assert len(engine.passes()) == len([chunk for chunk in chunks if chunk.made])


def test_what_cannot_be_had_is_said(engine: UpstreamEngine) -> None:
    list(engine.reply(QUESTION, GREEDY))
    assert "which decides about drafts and reproducibility" in engine.facts.left_out
    assert not engine.facts.is_reproducible
    assert "draft tokens were accepted" in engine.explain().why_plain
    assert engine.facts.n_ctx == 2048
    with pytest.raises(SettingsError, match="logit_bias names token ids"):
        engine.reply(QUESTION, Sampling(logit_bias=((5, 1.0),)))
    with pytest.raises(SettingsError, match="regex: the server that has the model does not support"):
        engine.reply(QUESTION, GREEDY, grammar=Grammar("regex", "a+"))
    with pytest.raises(SettingsError, match="token ids"):
        engine.reply(Ids((1, 900)), GREEDY)
    with pytest.raises(SettingsError, match="fill in"):
        engine.reply(Infill("a", "b"), GREEDY)
    with pytest.raises(SettingsError, match="Embeddings are made by Slipstream at"):
        engine.embed([[1]])


def test_text_goes_on_and_a_conversation_that_was_begun(engine: UpstreamEngine) -> None:
    whole = text_of(engine)
    begun = Ids((*engine.encode(QUESTION), *engine.tokenize("Join two or more")))
    assert "Join two or more" + text_of(engine, begun) == whole
    assert text_of(engine, "import os", max_tokens=3)


def test_a_stop_string_and_what_follows_never_come(engine: UpstreamEngine) -> None:
    *chunks, last = engine.reply(QUESTION, GREEDY, stops=["pathname"])
    assert "".join(chunk.text for chunk in [*chunks, last]) == "Join two or more "
    assert (last.finish_reason, last.stop) == ("stop", "pathname")


def test_log_probabilities_come_with_the_servers_tokens(engine: UpstreamEngine) -> None:
    entries = [entry for chunk in engine.reply(QUESTION, GREEDY, 3, n_logprobs=2) for entry in chunk.logprobs]
    assert [engine.token_text(entry.token) for entry in entries] == ["Join", " two", " or"]
    assert all(len(entry.top) == 2 and entry.top[0][0] == entry.token for entry in entries)


def test_a_form_of_the_reply_is_passed_on(engine: UpstreamEngine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert isinstance(json.loads(text_of(engine, grammar=Grammar("json_schema", json.dumps(schema))))["n"], int)


def test_our_server_over_our_server(ours: Running) -> None:
    pair = find_pair(ours.url, {})
    with running(lambda report: UpstreamEngine(pair, Options(), report)) as here:
        client = OpenAI(base_url=f"{here.url}/v1", api_key="none", max_retries=0)
        reply = client.chat.completions.create(
            model="any", temperature=0, messages=[{"role": "user", "content": QUESTION[0].content}]
        )
        assert str(reply.choices[0].message.content).startswith("Join two or more")
        assert reply.usage is not None
        assert reply.usage.prompt_tokens == 18
        calls = client.chat.completions.create(
            model="any", temperature=0, messages=[{"role": "user", "content": "Read a.txt"}], tools=[READ_FILE],
            tool_choice="required",
        ).choices[0].message.tool_calls  # fmt: skip
        assert calls
        assert "path" in json.loads(calls[0].function.arguments)  # type: ignore[union-attr]
        refused = here.client().post("/tokenize", json={"content": "os"})
        assert (refused.status_code, "Only Slipstream at" in refused.text) == (501, True)


def test_replies_do_not_wait_for_one_another(ours: Running) -> None:
    """One that waits for its server takes no time from another that has text."""
    held = threading.Event()

    def slow() -> Iterator[bytes]:
        held.wait(PATIENCE)
        yield from as_events(delta(content="late"), delta("stop")).parts

    answers = iter([Answer(slow(), kind="text/event-stream"), as_events(delta(content="soon"), delta("stop"))])
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: next(answers)}) as there:
        pair = find_pair(there.url, {})
        with running(lambda report: UpstreamEngine(pair, Options(), report)) as here:
            client = here.client()
            body = {"messages": [{"role": "user", "content": "?"}]}
            first: list[Any] = []
            thread = threading.Thread(target=lambda: first.append(client.post(CHAT, json=body).json()))
            thread.start()
            while not there.bodies:
                time.sleep(0.01)
            assert client.post(CHAT, json=body).json()["choices"][0]["message"]["content"] == "soon"
            assert not first
            held.set()
            thread.join()
            assert first[0]["choices"][0]["message"]["content"] == "late"


def test_reasoning_and_calls_come_as_text_that_is_read_here() -> None:
    call = [{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a": '}}]
    rest = [{"index": 0, "function": {"arguments": "1}"}}]
    events = (delta(reasoning_content="Hm"), delta(tool_calls=call), delta(tool_calls=rest), delta("tool_calls"))
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: as_events(*events)}) as here:
        said = text_of(opened(here))
    assert said == '<think>\nHm\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def test_others_are_asked_only_what_the_interface_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_UPSTREAM_KEY", "secret")
    events = as_events(delta(content="a"), delta("stop"))
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: events}) as here:
        engine = opened(here, exact=True)
        text_of(engine, max_tokens=5)
        assert set(here.bodies[0]) == {
            "model", "stream", "stream_options", "messages", "max_tokens", "temperature", "top_p",
        }  # fmt: skip
    assert set(here.keys) == {"Bearer secret"}
    assert "unencrypted" in engine.facts.fit
    assert "these options have no effect: exact kernels" in engine.facts.left_out
    with elsewhere({"/v1/models": models("m", **LLAMA), CHAT: lambda: events}) as here:
        text_of(opened(here))
        assert {"top_k", "min_p", "return_progress"} <= set(here.bodies[0])


def test_a_server_that_answers_whole_is_understood() -> None:
    whole = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "length"}], "usage": {"prompt_tokens": 4}}
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: as_json(whole)}) as here:
        *chunks, last = opened(here).reply(QUESTION, GREEDY)
    assert "".join(chunk.text for chunk in chunks) == "Hello"
    assert (last.finish_reason, last.stats and last.stats.prompt_n) == ("length", 4)


def test_a_reply_that_nobody_wants_is_left_at_once() -> None:
    def endless() -> Iterator[bytes]:
        for _ in itertools.count():
            yield from as_events(delta(content="on "), ends=False).parts
            time.sleep(0.01)

    with elsewhere({"/v1/models": models("m"), CHAT: lambda: Answer(endless(), kind="text/event-stream")}) as here:
        asked: list[int] = []
        chunks = list(opened(here).reply(QUESTION, GREEDY, cancel=lambda: bool(asked.append(1)) or len(asked) > 20))
        assert chunks[-1].finish_reason == "cancelled"
        assert here.was_left.wait(PATIENCE)


def test_one_that_says_nothing_can_be_cancelled() -> None:
    done = threading.Event()
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: as_json(done.wait(PATIENCE))}) as here:
        ends = time.monotonic() + 0.2
        last = list(opened(here).reply(QUESTION, GREEDY, cancel=lambda: time.monotonic() > ends))[-1]
        done.set()
    assert last.finish_reason == "cancelled"


def test_turns_are_left_out_of_a_conversation_that_is_too_long_there() -> None:
    too_long = as_json({"error": {"message": "prompt is too long", "code": "context_length_exceeded"}}, 400)
    answers = iter([too_long, as_events(delta(content="a"), delta("stop"))])
    talk = [Message("user", "one"), Message("assistant", "two"), *QUESTION]
    with elsewhere({"/v1/models": models("m"), CHAT: lambda: next(answers, too_long)}) as here:
        engine = opened(here)
        *_, last = engine.reply(talk, GREEDY, when_full="drop-oldest")
        assert [len(body["messages"]) for body in here.bodies] == [3, 1]
        assert last.notice.startswith("The oldest turns were left out")
        with pytest.raises(ContextError, match="too long"):
            text_of(engine, talk)


NONSENSE: dict[str, tuple[dict[str, Any], str]] = {
    "no list": ({"/v1/models": lambda: as_json([1])}, "does not have OpenAI's interface"),
    "no JSON": ({"/v1/models": lambda: Answer([b"<html>"])}, "does not have OpenAI's interface"),
    "no models": ({"/v1/models": lambda: as_json({"data": []})}, "does not have OpenAI's interface"),
    "several": ({"/v1/models": models("a", "b")}, "has 2 models: a, b. Name one"),
    "refused": (
        {"/v1/models": lambda: as_json({}, 401)},
        "requires a key. Put the right one into SLIPSTREAM_UPSTREAM_KEY",
    ),
    "moved": ({"/v1/models": lambda: as_json({}, 302)}, "redirects to another address"),
    "elsewhere": ({}, r"has no such address or model \(no such path\)"),
    "overloaded": (
        {"/v1/models": lambda: as_json({"error": "too busy\x1b[31m"}, 503)},
        r"cannot answer now \(too busy\[",
    ),
    "endless": ({"/v1/models": lambda: Answer(itertools.repeat(b" " * 2**20))}, "does not have OpenAI's interface"),
    "cut": ({"/v1/models": models("m"), CHAT: lambda: as_events(delta(content="a"), ends=False)}, "in the middle"),
    "not an event": ({"/v1/models": models("m"), CHAT: lambda: as_events("x")}, "does not have OpenAI's interface"),
    "an error": ({"/v1/models": models("m"), CHAT: lambda: as_events({"error": {"message": "lost"}})}, r"\(lost\)"),
    "odd types": (
        {"/v1/models": models("m"), CHAT: lambda: as_events({"choices": [{"delta": [3]}], "usage": 7, "timings": []})},
        "closed the connection",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_whatever_is_wrong_is_one_sentence_that_names_the_server(name: str) -> None:
    answers, sentence = NONSENSE[name]
    with elsewhere(answers) as here, pytest.raises(UpstreamError, match=sentence) as raised:
        text_of(opened(here))
    assert here.url in str(raised.value)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("error", [{"code": 503, "message": "Loading model"}, {"code": "loading", "message": "Later."}])
def test_a_server_that_loads_its_model_is_waited_for_as_long_as_that_is_wanted(
    error: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PAUSE", server.POLL_SECONDS)
    n_loading = itertools.count()
    loading, loaded = as_json({"error": error}, 503), models("m", **LLAMA)
    with elsewhere({"/v1/models": lambda: loading if next(n_loading) < 2 else loaded()}) as here:
        parts: list[str] = []
        engine = UpstreamEngine(find_pair(here.url, {}), Options(), lambda part, share: not parts.append(part))
        assert parts == ["target", SERVERS, SERVERS]
        assert engine.facts.n_ctx == 2048
    with elsewhere({"/v1/models": lambda: loading}) as here, pytest.raises(KeyboardInterrupt):
        UpstreamEngine(find_pair(here.url, {}), Options(), lambda part, share: part != SERVERS)


def test_a_server_that_is_not_there_or_speaks_another_language() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with pytest.raises(UpstreamError, match=f"127.0.0.1:{port}/v1 cannot be reached .connection refused."):
        UpstreamEngine(find_pair(f"http://127.0.0.1:{port}", {}))
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        def greet() -> None:
            line, _ = deaf.accept()
            with line:
                line.recv(2**16)  # or the connection would be reset
                line.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(UpstreamError, match="not HTTP"):
            UpstreamEngine(find_pair(f"http://127.0.0.1:{deaf.getsockname()[1]}", {}))


def registry(text: str) -> dict[str, Any]:
    return dict(parse_registry([(Path("models.toml"), text.encode())]))


def test_a_pair_may_be_a_servers() -> None:
    pair = registry('[pairs.far]\nupstream = "https://h:8000/"\nupstream_model = "q"\nupstream_key = "K"')["far"]
    assert (pair.upstream, pair.upstream_model, pair.upstream_key, pair.files) == ("https://h:8000/v1", "q", "K", [])
    assert find_pair("http://h/api/v3#q", {}).upstream == "http://h/api/v3"
    assert find_pair("http://h/api/v3#q", {}).upstream_model == "q"
    with pytest.raises(RegistryError, match="there is no file of it here"):
        local_pair("http://h", {})


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ('upstream = "h:8000"', "'h:8000' is not the address of a server"),
        ('upstream = "http://me:secret@h"', "must hold no name or password"),
        ('upstream = "http://h"\ntarget = "a.gguf"', "there can be no 'target'"),
        ('upstream = "http://h"\ndraft = "a.gguf"', "there can be no 'draft'"),
        ("upstream = 3", "'upstream' must be of type str"),
        ('upsteam = "http://h"', "Did you mean 'upstream'"),
        ('upstream = ""', "'target' is missing"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table: str, sentence: str) -> None:
    with pytest.raises(RegistryError, match=sentence):
        registry(f"[pairs.far]\n{table}")


def test_a_later_table_changes_where_a_model_is() -> None:
    here, there = b'[pairs.p]\ntarget = "a.gguf"\ndraft = "b.gguf"', b'[pairs.p]\nupstream = "http://h"'
    for texts, upstream, n_files in (((here, there), "http://h/v1", 0), ((there, here), "", 2)):
        pair = parse_registry([(Path("models.toml"), text) for text in texts])["p"]
        assert (pair.upstream, len(pair.files)) == (upstream, n_files)


def test_the_command_line_takes_an_address(ours: Running) -> None:
    pair, options = choices.choose(ours.url, choices.ModelOptions(drafters="ngram"))
    with closing(UpstreamEngine(pair, options)) as engine:
        assert "these options have no effect: drafters" in engine.facts.left_out
    with pytest.raises(Exception, match="no draft model can be used"):
        choices.choose(ours.url, choices.ModelOptions(draft="a.gguf"))
    with pytest.raises(SlipstreamError, match="no file of it"):
        LoadedEngine(pair)


@piloted
async def test_the_chat_speaks_with_another_server(ours: Running, tmp_path: Path) -> None:
    pair = find_pair(ours.url, {})
    async with chat_opened(tmp_path / "chats.db", UpstreamEngine, pair=pair, size=(100, 30)) as chat:
        await chat.until("is ready", gone="reproducibility")  # it is no fault that the server decides about that
        await chat.ask("What does os.path.join do?")
        await chat.until("Join two or more pathname components", "tok/s")
        await chat.press("f2")
        await chat.until("draft tokens were accepted", "The other server decides that")
        await chat.press("t")
        await chat.until("Nothing is decided here")


@piloted
async def test_the_chat_says_that_it_waits_for_a_server_and_leaves_its_drafts_to_it(tmp_path: Path) -> None:
    is_loaded = threading.Event()
    loading = as_json({"error": {"message": "Loading model"}}, 503)
    answers = {"/v1/models": lambda: models("m")() if is_loaded.is_set() else loading}
    with elsewhere(answers) as here:
        pair = find_pair(here.url, {})
        async with chat_opened(tmp_path / "chats.db", UpstreamEngine, pair=pair, wait=False) as chat:
            await chat.until("Waiting for 127.0.0.1", "which is still loading its model")
            is_loaded.set()
            await chat.until("is ready", gone="still loading")
            await chat.press("f2")
            await chat.until("decides about drafts itself", "The other server decides that", gone="models pair")


@piloted
async def test_no_length_of_a_prompt_is_claimed_that_a_server_does_not_tell(tmp_path: Path) -> None:
    answers = {"/v1/models": models("m"), CHAT: lambda: as_events(delta(content="Paris."), delta("stop"))}
    with elsewhere(answers) as here:
        pair = find_pair(here.url, {})
        async with chat_opened(tmp_path / "chats.db", UpstreamEngine, pair=pair) as chat:
            await chat.ask("Q")
            await chat.until("Paris.", "tok/s", gone="context")


def test_metrics_of_others_are_read() -> None:
    name = "vllm:spec_decode_num_{}_tokens_total"
    vllm = "".join(f'{name.format(kind)}{{engine="0"}} {n}.0\n' for kind, n in (("draft", 30), ("accepted", 21)))
    assert "21 of 30 draft tokens were accepted (70%)" in str(drafted_in(vllm))
    assert "a pass yields 2.50 tokens" in str(drafted_in('sglang:spec_accept_length{model="m"} 2.5\n'))
    assert "do not report drafts" in str(drafted_in("up 1\n"))


def test_what_opens_engines_opens_this_one(ours: Running) -> None:
    for draft in ("auto", "off"):
        with closing(opener(draft)(find_pair(ours.url, {}), Options())) as engine:
            assert engine.facts.upstream == f"Slipstream at {ours.url}/v1"
