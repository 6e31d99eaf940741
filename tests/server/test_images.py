"""Clients of the server ask about images, in all its interfaces; what cannot be read is refused with its place."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from app.server.openai.conversation import ConversationRequest
from app.server.openai.messages import LOST, LOST_NOTE
from runtime.engine import Message, Options, Rendered, mark_of
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
        found = client.get("/v1/models").json()
        assert [found[key][0]["capabilities"] for key in ("data", "models")] == [["completion", "multimodal"]] * 2
        assert "vision" in client.post("/api/show", json={"model": "seeing"}).json()["capabilities"]


def test_earlier_images_stay(server: Running, engine: LoadedEngine) -> None:
    turns = [
        {"role": "user", "content": [image(PHOTO), TEXT]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ]
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": turns, "max_tokens": 4, "seed": 1})
    n_image = len([token for token in engine.encode(question(PHOTO)) if token < 0])
    assert reply.json()["usage"]["prompt_tokens"] > n_image


def results(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """A conversation with an image in a tool's result, for each interface that has such."""
    called = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    source = BLOCK["source"] | {"data": base64.b64encode(data).decode()}  # type: ignore[operator]
    result = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "is_error": True,
        "content": [BLOCK | {"source": source}, TEXT],
    }
    user = {"role": "user", "content": "Look."}
    return [
        (
            "/v1/chat/completions",
            {
                "messages": [
                    user,
                    {"role": "assistant", "tool_calls": [called]},
                    {"role": "tool", "tool_call_id": "c1", "content": [image(data), TEXT]},
                ]
            },
        ),
        (
            "/v1/messages",
            {
                "messages": [
                    user,
                    {"role": "assistant", "content": [use]},
                    {"role": "user", "content": [result]},
                ],
                "max_tokens": 4,
            },
        ),
        (
            "/v1/responses",
            {
                "input": [
                    user,
                    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                    {
                        "type": "function_call_output",
                        "call_id": "c1",
                        "output": [{"type": "input_image", "image_url": url(data)}],
                    },
                ]
            },
        ),
    ]


def n_read(reply: httpx2.Response) -> int:
    """The number of tokens of a prompt."""
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    cached = usage.get("cache_read_input_tokens", 0)
    return int(usage.get("prompt_tokens") or usage["input_tokens"] + cached)


def test_images_in_results_of_tools_are_seen(server: Running, engine: LoadedEngine) -> None:
    n_image = len([token for token in engine.encode(question(PHOTO)) if token < 0])
    large = pictures.png(pictures.noise(8, 8))  # resized to what the encoder takes
    with server.client() as client:
        for (path, body), (_, other) in zip(results(PHOTO), results(large), strict=True):
            limits = {"max_output_tokens": 4} if path == "/v1/responses" else {"max_tokens": 4}
            assert n_read(client.post(path, json=body | limits)) > n_image
            assert n_read(client.post(path, json=other | limits)) > n_image


def test_an_image_that_a_template_changes_in_a_result_becomes_a_note(
    engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, body = results(PHOTO)[0]
    asked = ConversationRequest.model_validate(body, context={"sees_images": True})
    assert mark_of(PHOTO) in asked.write(engine).text
    monkeypatch.setattr(engine, "render", escaped(engine.render))
    found = asked.write(engine)
    assert LOST_NOTE in found.text
    assert "__image_" not in found.text
    assert LOST in found.rendered.changes


def escaped(whole: Callable[..., Rendered]) -> Callable[..., Rendered]:
    """What renders a conversation with a template that escapes its results."""

    def render(messages: Sequence[Message], *more: Any) -> Rendered:
        changed = [replace(each, content=each.content.replace("<__", "&lt;__")) for each in messages]
        return whole(changed, *more)

    return render


def test_notes_stay_for_a_model_without_eyes() -> None:
    for _, body in results(PHOTO)[:1]:
        asked = ConversationRequest.model_validate(body)
        assert "image left out: this model reads text only" in asked.messages[-1].text
