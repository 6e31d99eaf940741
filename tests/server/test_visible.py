"""What can be seen of a server: a line and an id for each request, and signs of life while a client waits."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.server import task_response
from tests.conftest import OpenEngine
from tests.support.cli import beside
from tests.support.serving import Running, endless_request, events, is_idle, open_plain, running
from tests.support.waiting import PATIENCE, wait_for

LOG = "app.server.middleware"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "xyzzy"}], "max_tokens": 5}


@pytest.fixture(scope="module")
def endless(open_demo: OpenEngine) -> dict[str, Any]:
    return endless_request(open_demo(threads=1)) | {"n_predict": -1, "stream": True}


def line_of(caplog: pytest.LogCaptureFixture, here: Running, n: int = 1) -> str:
    """The nth line, which is written when the client has its answer already."""
    wait_for(lambda: len(caplog.messages) >= n and is_idle(here))
    return caplog.messages[n - 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_one_line_with_its_tokens(here: Running, caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    with caplog.at_level(logging.INFO, LOG):
        reply = here.client().post(
            "/v1/chat/completions?key=xyzzy", json=CHAT | {"stream": stream, "stream_options": {"include_usage": True}}
        )
        line = line_of(caplog, here)
    usage = (events(reply)[-1] if stream else reply.json())["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    tokens = f"{usage['prompt_tokens']}\\+{usage['completion_tokens']} tokens" + (
        f" \\({cached} cached\\)" if cached else ""
    )
    request_id = reply.headers["x-request-id"]
    asked = '127.0.0.1:[0-9]+ - "POST /v1/chat/completions HTTP/1.1"'
    assert re.fullmatch(f"{asked} 200, {tokens}, [0-9]+ ms, {request_id}", line)
    assert len(caplog.messages) == 1


def test_a_line_says_what_was_changed_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    call = {"function": {"name": "f", "arguments": "[1]"}}
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": [image]}, *CHAT["messages"]]
    said = ", fitted: a note put in place of parts that are not text; arguments wrapped in an object"
    for verbose in (True, False):
        with running(open_plain, verbose=verbose) as here, caplog.at_level(logging.INFO, LOG):
            caplog.clear()
            here.client().post("/v1/chat/completions", json=CHAT | {"messages": turns}).raise_for_status()
            assert (said in line_of(caplog, here)) == verbose
            here.client().post("/v1/chat/completions", json=CHAT).raise_for_status()
            assert "fitted" not in line_of(caplog, here, 2)


def test_what_has_no_tokens_and_what_fails_are_lines_too(here: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOG):
        here.client().get("/health", headers={"x-request-id": "a-1"})
        assert re.search(r'"GET /health HTTP/1.1" 200, \d+ ms, a-1$', line_of(caplog, here))
        here.client().post("/v1/chat/completions", content="{")
        assert '"POST /v1/chat/completions HTTP/1.1" 400, ' in line_of(caplog, here, 2)
        here.client().get("/x%0Ay%22" + "z" * 500)
        line = line_of(caplog, here, 3)
        assert '"GET /x%0Ay%22zzz' in line
        assert len(line) < 300


def test_a_client_that_leaves_is_a_line(
    here: Running, endless: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, LOG):
        with here.client().stream("POST", "/completion", json=endless) as reply:
            next(line for line in reply.iter_lines() if line)
        assert re.search(r'"POST /completion HTTP/1.1" 200, \d+\+\d+ tokens', line_of(caplog, here))


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/nothing", 404), ("/v1/messages", 405)])
def test_every_answer_has_an_id(here: Running, path: str, status: int) -> None:
    client = here.client()
    given = client.get(path, headers={"x-request-id": "trace:12/ab=+"})
    assert (given.status_code, given.headers["x-request-id"]) == (status, "trace:12/ab=+")
    assert given.headers["request-id"] == "trace:12/ab=+"
    made = [client.get(path, headers=headers).headers["x-request-id"] for headers in ({}, {"x-request-id": "a b"})]
    made.append(client.get(path, headers={"x-request-id": "x" * 129}).headers["x-request-id"])
    assert all(re.fullmatch("req_[0-9a-f]{24}", each) for each in made)
    assert len(set(made)) == 3
    assert "x-request-id" in client.get(path, headers={"host": "evil.example"}).headers


def test_what_fails_unexpectedly_has_an_id(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.server.served.engine, "tokenize", lambda *_, **__: 1 / 0)
    reply = here.client().post("/tokenize", json={"content": "x"})
    assert reply.status_code == 500
    assert reply.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("quiet", [False, True])
def test_the_command_prints_lines_unless_it_is_to_be_quiet(tmp_path: Path, quiet: bool) -> None:
    args = ["--threads", "1", "--drafters", "none", "--socket", str(tmp_path / "s"), *["--quiet"] * quiet]
    with beside("serve", "demo", *args) as server:
        assert server.stderr is not None
        assert "answering" in server.stderr.readline()
        assert "MiB" in server.stderr.readline()
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(tmp_path / "s"))) as client:
            client.get("http://anything/health", headers={"x-request-id": "a"})
        server.terminate()
        assert server.wait(PATIENCE) == -signal.SIGTERM
        said = server.stderr.read()
    assert not said if quiet else re.fullmatch(r'slipstream: socket - "GET /health HTTP/1.1" 200, \d+ ms, a\n', said)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_response, "PING", 0.02)


@pytest.mark.usefixtures("impatient")
def test_a_stream_shows_that_it_lives_while_its_prompt_is_read(here: Running, open_demo: OpenEngine) -> None:
    long = {
        "prompt": "word " * (open_demo(threads=1).facts.n_ctx // 4),
        "n_predict": 1,
        "stream": True,
        "cache_prompt": False,
    }
    lines = [line for line in here.client().post("/completion", json=long).text.split("\n") if line]
    assert lines[0].startswith(":")
    assert any(line.startswith("data: ") for line in lines)


@contextmanager
def busy(here: Running, endless: dict[str, Any]) -> Iterator[None]:
    """Another has every turn until the block ends: the engine holds one conversation."""
    with here.client().stream("POST", "/completion", json=endless) as reply:
        lines = reply.iter_lines()  # held, because the connection ends with it
        next(lines)
        yield


@contextmanager
def in_line(here: Running) -> Iterator[Iterator[str]]:
    """The lines that a chat is told, which has yet to begin."""
    with here.client().stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as waiting:
        yield (line for line in waiting.iter_lines() if line)


@pytest.mark.usefixtures("impatient")
def test_a_stream_shows_that_it_lives_while_it_stands_in_line(here: Running, endless: dict[str, Any]) -> None:
    with ExitStack() as others:
        others.enter_context(busy(here, endless))
        with in_line(here) as lines:
            assert '"role"' in next(lines)
            assert next(lines).startswith(":")
            assert here.server.served.n_waiting == 1
            others.close()
            assert "data: [DONE]" in list(lines)


@pytest.mark.usefixtures("impatient")
def test_what_fails_in_line_is_an_event(endless: dict[str, Any]) -> None:
    with running(open_plain) as here, busy(here, endless), in_line(here) as lines:
        next(lines)
        here.server.should_exit = True
        assert any("shutting_down" in line for line in lines)
