"""Bad input and strangers: everything gets OpenAI's error body, and the server lives."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import find_pair
from tests.support.serving import Running, open_plain, running

LONG = "word " * 3000
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
KEY = "sk-secret-ü"


@pytest.fixture(scope="module")
def keyed() -> Iterator[Running]:
    with running(open_plain, api_key=KEY) as found:
        yield found


def refusal(reply: httpx2.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) - {"n_prompt_tokens", "n_ctx"} == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages.0.role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "messages.0.content.0",
        ),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1e999}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"seed": 2**64}, "seed"),
        ({"n": 129}, "n"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"stop": [1]}, "stop.0"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"logit_bias": {"4096": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream": "yes"}, "stream"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}},
            "response_format",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(client: httpx2.Client, change: dict[str, Any], param: str) -> None:
    reply = client.post(
        "/v1/chat/completions", content=json.dumps(CHAT | change), headers={"content-type": "application/json"}
    )
    assert refusal(reply, 400)["param"] == param


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/v1/chat/completions", [], "The body must be a JSON object."),
        ("/v1/chat/completions", {}, "messages is missing: send it."),
        ("/v1/chat/completions", CHAT | {"stop": 5}, "stop must be a text or a list."),
        ("/v1/chat/completions", {"messages": []}, "messages must have at least 1 item, not 0."),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": 5}]},
            "messages.0.content must be a text or a list.",
        ),
        (
            "/v1/completions",
            {"prompt": {"text": "a"}},
            "prompt must be a text, a list of token ids, or a list of such.",
        ),
        ("/v1/embeddings", {"input": 5}, "input must be a text or a list."),
        ("/infill", {"input_prefix": "x"}, "input_suffix is missing: send it."),
    ],
)
def test_what_is_wrong_is_one_sentence(client: httpx2.Client, path: str, body: Any, sentence: str) -> None:
    assert refusal(client.post(path, json=body), 400)["message"] == sentence


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"messages":"\xed\xa0\x80"}', b"[" * 30_000],
)
def test_what_is_not_a_json_object_is_refused(client: httpx2.Client, body: bytes) -> None:
    refusal(client.post("/v1/chat/completions", content=body), 400)


ABSURD = ("1" + "0" * 400, "1e400", "-1e400", "NaN", "-Infinity", "1" + "0" * 5000)


@pytest.mark.parametrize("number", ABSURD)
@pytest.mark.parametrize("field", ["t_max_predict_ms", "temperature", "seed", "logit_bias", "top_p"])
def test_an_absurd_number_is_refused_by_its_name(client: httpx2.Client, field: str, number: str) -> None:
    value = f"[[1, {number}]]" if field == "logit_bias" else number
    for path, prompt in (("/completion", '"prompt": "x"'), ("/v1/completions", '"prompt": "x"')):
        if field == "t_max_predict_ms" and path != "/completion":
            continue
        reply = client.post(path, content=f'{{{prompt}, "{field}": {value}}}')
        if not (field == "logit_bias" and number in ("-1e400", "-Infinity")):  # that forbids the token
            assert len(refusal(reply, 400)["message"]) < 200


@pytest.mark.parametrize("number", ABSURD)
def test_an_absurd_number_elsewhere_is_no_fault_of_the_server(client: httpx2.Client, number: str) -> None:
    schema = f'{{"type": "array", "minItems": {number}}}'
    tool = f'{{"type": "function", "function": {{"name": "a", "parameters": {schema}}}}}'
    for body in (f'"logit_bias": [[{number}, 1]]', f'"n_predict": {number}', f'"tools": [{tool}]'):
        chat = f'{{"messages": [{{"role": "user", "content": "x"}}], "max_tokens": 2, {body}}}'
        reply = client.post("/v1/chat/completions", content=chat)
        assert reply.status_code == 200 or refusal(reply, 400), reply.text


def test_what_does_not_exist_is_said(client: httpx2.Client) -> None:
    assert "demo" in refusal(client.get("/v1/models/gpt-4o"), 404)["message"]
    refusal(client.get("/v2"), 404)
    wrong_method = client.get("/v1/chat/completions")
    refusal(wrong_method, 405)
    assert wrong_method.headers["allow"] == "POST"
    for method, path in (("POST", "/models"), ("DELETE", "/v1/models?model=a"), ("POST", "/api/pull")):
        answer = client.request(method, path, json={"model": "a"})
        assert answer.status_code == (404 if "pull" in path else 405)
        assert "`slipstream models pull NAME`" in answer.text  # Ollama's errors are texts


def test_a_prompt_of_ten_megabytes_is_too_long_for_the_context(client: httpx2.Client) -> None:
    long = {"messages": [{"role": "user", "content": "word " * 2_000_000}]}
    assert refusal(client.post("/v1/chat/completions", json=long), 400)["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/v1/chat/completions", "messages", [{"role": "user", "content": LONG}]),
        ("/v1/completions", "prompt", LONG),
        ("/v1/responses", "input", LONG),
        ("/v1/embeddings", "input", LONG),
        ("/completion", "prompt", LONG),
    ],
)
def test_a_text_that_is_too_long_is_named_as_the_request_does(
    client: httpx2.Client, path: str, field: str, value: Any
) -> None:
    said = refusal(client.post(path, json={field: value}), 400)
    assert (said["code"], said["param"]) == ("context_length_exceeded", field)
    assert said["type"] == "exceed_context_size_error"
    assert said["n_prompt_tokens"] >= said["n_ctx"] > 0
    assert f"maximum context length is {said['n_ctx']} tokens. However," in said["message"]


def test_a_body_over_the_limit_is_refused_however_it_comes(client: httpx2.Client, here: Running) -> None:
    with socket.create_connection(("127.0.0.1", here.port)) as sock:
        sock.sendall(f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {33 * 2**20}\r\n\r\n".encode())
        assert b" 413 " in sock.recv(100)

    def parts() -> Iterator[bytes]:
        for _ in range(33):
            yield b" " * 2**20

    refusal(client.post("/completion", content=parts()), 413)


def test_an_empty_prompt_is_refused(client: httpx2.Client) -> None:
    refusal(client.post("/completion", json={"prompt": ""}), 400)
    refusal(client.post("/completion", json={"prompt": [99_999]}), 400)
    refusal(client.post("/completion", json={"prompt": "x", "grammar": "root ::= x"}), 400)


def test_only_local_pages_may_read_an_answer(client: httpx2.Client) -> None:
    local = client.get("/v1/models", headers={"origin": "http://localhost:3000"})
    assert local.headers["access-control-allow-origin"] == "http://localhost:3000"
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    assert (
        client.options("/v1/chat/completions", headers={"origin": "http://localhost:3000", **asks}).status_code == 200
    )
    strange = client.options("/v1/chat/completions", headers={"origin": "http://localhost.evil.example", **asks})
    assert "access-control-allow-origin" not in strange.headers


def test_a_key_opens_and_nothing_else_does(keyed: Running) -> None:
    client = keyed.client()
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}, {"authorization": "Bearer"}):
        assert refusal(client.get("/v1/models", headers=headers), 401)["code"] == "invalid_api_key"
    right = {"authorization": f"Bearer {KEY}".encode()}
    assert client.get("/v1/models", headers=right).status_code == 200
    page = client.get("/v1/models", headers={**right, "origin": b"https://app.example", "host": b"box.lan"})
    assert page.headers["access-control-allow-origin"] == "https://app.example"
    assert client.get("/health").status_code == 200


def test_what_was_said_is_not_logged(
    client: httpx2.Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO):
        client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "xyzzy"}], "max_tokens": 2})
        client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": ["xyzzy"]}]})
    assert "xyzzy" not in caplog.text
    assert "xyzzy" not in "".join(capfd.readouterr())


def test_a_missing_template_is_told_of_the_field_it_was_needed_for(tiny: Path) -> None:
    with running(lambda on_progress: EngineProcess(find_pair(str(tiny), {}), Options(threads=1), on_progress)) as here:
        for path, body, field in (
            ("/v1/chat/completions", CHAT, "messages"),
            ("/v1/responses", {"input": "hi"}, "input"),
        ):
            said = refusal(here.client().post(path, json=body), 400)
            assert "has no chat template" in said["message"]
            assert said["param"] == field
