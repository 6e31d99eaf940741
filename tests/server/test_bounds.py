"""Bounds before work: what a request may cost before anything of it is made."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from app.server import request_body
from app.server.errors import ApiError
from app.server.fields import MAX_TEXTS, checked, n_texts
from app.server.openai.chat import ChatRequest
from runtime.conversation.calls.schemas import bound_schema
from runtime.core.errors import SettingsError
from runtime.engine import Grammar, Sampling
from runtime.sampling.bounds import MAX_KEYS, MAX_PATTERNS
from runtime.sampling.grammar import compile_grammar
from tests.conftest import OpenEngine
from tests.support.serving import Running, open_plain, running
from tests.support.waiting import PATIENCE, wait_for

ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/apply-template"])
def test_more_messages_than_the_context_has_tokens_are_not_looked_at(here: Running, path: str) -> None:
    n = here.server.served.engine.facts.n_ctx + 1
    field = "input" if "responses" in path else "messages"
    body = {field: [{"role": "user", "content": ""}] * n, "max_tokens": 1}
    answer = here.client().post(path, json=body)
    assert answer.status_code == 400
    assert f"{n} tokens" in answer.text
    assert here.client().post("/v1/chat/completions", json=ASKED).status_code == 200


@pytest.mark.parametrize("message", [b'{"r\\u006fle":"user","content":""}', b'{"type":"text","text":""}'])
def test_a_body_of_very_many_texts_is_not_looked_at(message: bytes) -> None:
    body = bytearray(b'{"messages":[' + b",".join([message] * MAX_TEXTS))  # its end is missing
    with pytest.raises(ApiError, match=f"has {4 * MAX_TEXTS + 1} texts") as raised:
        checked(body, ChatRequest, 2048)
    assert raised.value.status == 413


def test_quotation_marks_within_a_text_are_no_texts() -> None:
    assert n_texts(bytearray(json.dumps({"role": 'say "hi" and "bye"', "n": 1}).encode())) == 3
    many = bytearray(json.dumps(ASKED | {"user": '"' * 4 * MAX_TEXTS}).encode())
    assert checked(many, ChatRequest, 2048).messages


def test_a_body_that_does_not_come_is_cut_off(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "TIMEOUT", 0.2)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE) as client:
        client.sendall(head.encode())
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_a_body_that_drips_is_cut_off(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "TIMEOUT", 0.4)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", here.port), timeout=0.02) as client:
        client.sendall(head.encode())
        answer, ends = b"", time.monotonic() + PATIENCE
        while not answer and time.monotonic() < ends:
            with suppress(TimeoutError):
                client.sendall(b" ")
                answer = client.recv(1000)
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "biases",
    [
        {"x" * 301: 1},
        {"5" * 301: 1},
        {"x" * 20_000_000: 1},
        [["x" * 301, 1]],
        {f"t{i}": 1 for i in range(301)},
        [[f"t{i}", 1] for i in range(301)],
        [[0, 1]] * 5000,
        {"9" * 19: 1},
        {"--1": 1},
        "x" * 1000,
        {str(i): 1 for i in range(2**17)},
        [[10**400, 1]],
        {"x": 10**400},
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/completion"])
def test_biases_are_bounded_before_anything_is_tokenized(here: Running, biases: Any, path: str) -> None:
    body = ASKED | {"prompt": "Hi", "n_predict": 1, "logit_bias": biases}
    answer = here.client().post(path, json=body)
    is_text = biases == {"--1": 1}
    assert answer.status_code == (200 if is_text else 400), answer.text
    assert is_text or "logit_bias" in answer.json()["error"]["message"]
    assert len(answer.text) < 500 or is_text


def test_as_many_biases_as_words_are_taken(here: Running) -> None:
    n = here.server.served.engine.facts.n_vocab
    biases: dict[str, float] = {str(token): 0.1 for token in range(n)}
    assert here.client().post("/v1/chat/completions", json=ASKED | {"logit_bias": biases}).status_code == 200
    texts = {chr(0x4E00 + i) * 300: 1.0 for i in range(300)}
    assert here.client().post("/v1/chat/completions", json=ASKED | {"logit_bias": texts}).status_code in (200, 400)


def test_headers_without_an_end_are_cut_off(here: Running) -> None:
    with socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE) as client:
        answer = b""
        with suppress(ConnectionError):  # it may not read what is still on its way
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 2**18)
            answer = client.recv(100)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert here.client().get("/health").status_code == 200


def test_two_ways_to_end_a_body_contradict_each_other(here: Running) -> None:
    head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE) as client:
        client.sendall(head.encode() + b"2\r\n{}\r\n0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_large_bodies_take_turns(here: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "LARGE", 1000)
    body = ASKED | {"user": "x" * 5000}
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(here.client().post("/v1/chat/completions", json=body).status_code)

    clients = [threading.Thread(target=ask) for _ in range(3 * request_body.N_LARGE)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert set(statuses) == {200}
    monkeypatch.setattr(request_body, "TIMEOUT", 0.2)
    room = here.server.app.state.room
    room._large._value = room._small._value = 0
    packed: dict[str, Any] = {
        "content": gzip.compress(json.dumps(body).encode()),
        "headers": {"content-encoding": "gzip"},
    }
    for sent in (dict[str, Any](json=body), packed, dict[str, Any](json=ASKED)):
        refused = here.client().post("/v1/chat/completions", **sent)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    room._large.release()
    assert here.client().post("/v1/chat/completions", json=body).status_code == 200
    room._small.release()
    assert here.client().post("/v1/chat/completions", json=ASKED).status_code == 200


def test_who_only_says_that_a_body_is_large_keeps_no_place_from_others(
    here: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_body, "LARGE", 1000)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(request_body.N_LARGE):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE))
            client.sendall(head.encode())
        answer = here.client().post("/v1/chat/completions", json=ASKED | {"user": "x" * 5000})
    assert answer.status_code == 200


@pytest.mark.parametrize("size", [900, 60_000], ids=["small", "large"])
def test_slow_senders_make_room_for_others(here: Running, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Whoever sends a part of a body and then waits is given up as soon as others need the memory."""
    monkeypatch.setattr(request_body, "LARGE", 1000)
    monkeypatch.setattr(request_body, "MAX_ARRIVING", 100_000)
    end = b'{"content": "a"}'
    head = f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size + len(end)}\r\n\r\n".encode()
    with ExitStack() as stack:
        slow = []
        for _ in range(200_000 // size):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", here.port), timeout=PATIENCE))
            client.sendall(head + b" " * size)
            slow.append(client)
        answer = here.client().post("/v1/chat/completions", json=ASKED | {"user": "x" * 5000})
        assert answer.status_code == 200
        assert slow[0].recv(100).startswith(b"HTTP/1.1 503")
        slow[-1].sendall(end)  # those that came last are still waited for
        assert slow[-1].recv(100).startswith(b"HTTP/1.1 200")
    room = here.server.app.state.room
    wait_for(lambda: not room._arriving and room._n_bytes == 0)


@pytest.mark.parametrize(
    ("keyword", "most", "what"),
    [("properties", MAX_KEYS, "keys"), ("patternProperties", MAX_PATTERNS, "patterns for keys")],
)
def test_a_schema_of_very_many_keys_is_refused_by_their_number(
    open_demo: OpenEngine, keyword: str, most: int, what: str
) -> None:
    tokenizer = open_demo(threads=1).vocab.grammar_tokenizer
    for n, is_fine in ((most // 5, True), (most + 1, False)):
        parts = {"type": "object", keyword: {f"^p{i}$": {"type": "string"} for i in range(n)}}
        schema = Grammar("json_schema", json.dumps({"type": "array", "items": parts}))
        if is_fine:
            compile_grammar(schema, tokenizer)
        else:
            with pytest.raises(SettingsError, match=f"names {n} {what}"):
                compile_grammar(schema, tokenizer)


def test_a_tool_of_very_many_arguments_may_be_called_with_any(caplog: pytest.LogCaptureFixture) -> None:
    """A client has many tools, and one is not to cost it the others."""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(MAX_KEYS + 1)}}
    rule = json.loads(bound_schema("huge", json.dumps(schema)))
    assert (rule["type"], "properties" in rule) == ("object", False)
    assert f"'huge': its schema names {MAX_KEYS + 1} keys" in caplog.text


def test_what_is_wrong_with_a_grammar_is_said_without_the_grammar(open_demo: OpenEngine) -> None:
    bad = Grammar("lark", "start: " + "x " * 10_000)
    with pytest.raises(SettingsError) as raised:
        open_demo(threads=1).reply("x", Sampling(), grammar=bad)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_name_of_a_scheme_has_no_case(scheme: str) -> None:
    with running(open_plain, api_key="secret") as here:
        answer = here.client().get("/v1/models", headers={"authorization": f"{scheme} secret"})
    assert answer.status_code == 200
