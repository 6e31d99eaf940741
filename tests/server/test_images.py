"""Clients of the server ask about images, in all its interfaces; what cannot be read is refused with its place."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from tests.engine.test_images import N_CTX, OTHER, PHOTO, pair_in, question
from tests.support import pictures
from tests.support.eyes import needs_mtmd
from tests.support.serving import Running, running

pytestmark = needs_mtmd


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedEngine]:
    found = LoadedEngine(pair_in(tmp_path_factory.mktemp("seeing")), Options(N_CTX, threads=1, slots=3))
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(engine: LoadedEngine) -> Iterator[Running]:
    pair: Pair = engine.pair
    with running(lambda on_progress: LoadedEngine(pair, Options(N_CTX, threads=1, slots=3))) as here:
        yield here


def url(data: bytes, kind: str = "png") -> str:
    """A data URL."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def chat(*parts: Any, **more: Any) -> dict[str, Any]:
    """The body of a request to /v1/chat/completions."""
    return {"messages": [{"role": "user", "content": [*parts]}], "seed": 7, "max_tokens": 12, "logprobs": True} | more


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url(data)}}


TEXT = {"type": "text", "text": "What is it?"}
BLOCK = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PHOTO).decode()},
}


def content(reply: httpx2.Response) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def likeliest(reply: httpx2.Response) -> float:
    """The log probability of the first token."""
    return float(reply.json()["choices"][0]["logprobs"]["content"][0]["logprob"])


def test_openai_clients_ask_about_images(server: Running, engine: LoadedEngine) -> None:
    with server.client() as client:
        first = client.post("/v1/chat/completions", json=chat(image(PHOTO), TEXT))
        other = client.post("/v1/chat/completions", json=chat(image(OTHER), TEXT))
        again = client.post("/v1/chat/completions", json=chat(image(PHOTO), TEXT))
    assert content(first) == content(again)
    assert likeliest(first) == likeliest(again) != likeliest(other)
    n = len(engine.encode(question(PHOTO)))
    assert first.json()["usage"]["prompt_tokens"] == n
    assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == n - 1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("https://example.com/cat.png", "addresses are not fetched"),
        ("file:///etc/passwd", "addresses are not fetched"),
        ("data:image/png;base64,****", "Base64"),
        (url(b"<svg/>", "svg+xml"), "an SVG"),
        (url(pictures.png(pictures.noise(8, 8), size=(100_000, 100_000))), "100000 x 100000 pixels"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(server: Running, address: str, message: str) -> None:
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json=chat({"type": "image_url", "image_url": {"url": address}}))
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert message in error["message"]
    assert error["param"].startswith("messages.0.content.0")


def test_the_other_interfaces_take_images(server: Running) -> None:
    encoded = base64.b64encode(PHOTO).decode()
    responses = [
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": url(PHOTO)}, {"type": "input_text", "text": "Hi"}],
        }
    ]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/messages", {"messages": [{"role": "user", "content": [BLOCK, TEXT]}], "max_tokens": 4}),
        ("/v1/responses", {"input": responses, "max_output_tokens": 4}),
        (
            "/completion",
            {"prompt": {"prompt_string": "See <__media__>: ", "multimodal_data": [encoded]}, "n_predict": 4},
        ),
        ("/api/chat", {"messages": [{"role": "user", "content": "Hi", "images": [encoded]}], "stream": False}),
        ("/api/generate", {"prompt": "Hi", "images": [encoded], "stream": False}),
    ]
    with server.client() as client:
        for path, body in asked:
            reply = client.post(path, json=body | {"options": {"num_predict": 4}})
            assert reply.status_code == 200, (path, reply.text)
            told = reply.json()
            counted = told.get("prompt_eval_count") or told.get("tokens_evaluated") or told["usage"]["input_tokens"]
            cached = reply.json().get("usage", {}).get("cache_read_input_tokens", 0)
            assert counted + cached > 16, path


def test_each_mark_of_llamacpp_is_an_image(server: Running) -> None:
    prompt = {"prompt_string": "<__media__> and <__media__>", "multimodal_data": ["AA=="]}
    with server.client() as client:
        reply = client.post("/completion", json={"prompt": prompt | {"multimodal_data": []}, "n_predict": 1})
        assert reply.status_code == 200
        reply = client.post("/completion", json={"prompt": prompt, "n_predict": 1})
        assert reply.status_code == 400
        assert client.get("/props").json()["modalities"]["vision"]
        assert "vision" in client.post("/api/show", json={"model": "seeing"}).json()["capabilities"]


def test_earlier_images_stay_and_those_of_results_become_notes(server: Running, engine: LoadedEngine) -> None:
    turns = [
        {"role": "user", "content": [image(PHOTO), TEXT]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ]
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": turns, "max_tokens": 4, "seed": 1})
    n_image = len([token for token in engine.encode(question(PHOTO)) if token < 0])
    assert reply.json()["usage"]["prompt_tokens"] > n_image
