"""Clients of the server ask for embeddings of texts with images, as llama.cpp's test_vision_api.py does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from tests.engine.test_images import N_CTX, OTHER, PHOTO, pair_in
from tests.server.test_images import TEXT, image
from tests.support.eyes import needs_mtmd
from tests.support.serving import Running, running

ENCODED = base64.b64encode(PHOTO).decode()
pytestmark = needs_mtmd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    pair = pair_in(tmp_path_factory.mktemp("seeing"))
    with running(lambda on_progress: LoadedEngine(pair, Options(N_CTX, threads=1, slots=3))) as here:
        yield here


def vectors(reply: httpx2.Response) -> list[list[float]]:
    """The embeddings of a reply in OpenAI's format."""
    assert reply.status_code == 200, reply.text
    return [each["embedding"] for each in reply.json()["data"]]


def test_images_have_embeddings_too(server: Running) -> None:
    """In llama.cpp's own format, and as parts of a message."""
    marked = {"prompt_string": "What is this: <__media__>\n", "multimodal_data": [ENCODED]}
    parts = [TEXT | {"text": "What is this: "}, image(PHOTO), TEXT | {"text": "\n"}]
    plain = {"prompt_string": "What is this: \n"}
    with server.client() as client:
        own = client.post("/embeddings", json={"content": [marked, marked, plain]})
        openai = client.post("/v1/embeddings", json={"input": [{"content": parts}, marked, "What is this: \n"]})
        other = client.post("/v1/embeddings", json={"input": [{"content": [*parts[:1], image(OTHER), *parts[2:]]}]})
    first, second, third = (each["embedding"][0] for each in own.json())
    assert first == second != third
    assert vectors(openai) == [first, first, third]
    assert first not in vectors(other)
    assert openai.json()["usage"]["prompt_tokens"] > own.text.count("<__media__>") + 30


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"prompt_string": "See <__media__>", "multimodal_data": ["malformed"]}, "must be an image in Base64."),
        ({"prompt_string": "See", "multimodal_data": [ENCODED]}, "once for each of the 1 images"),
        (
            {"content": [image(b"GIF89a")]},
            "must be another image: The image is damaged or incomplete. Save it again as a PNG or JPEG.",
        ),
        ({"content": [{"type": "input_audio", "input_audio": {}}]}, "audio input is not supported"),
        ({"content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}, "are not fetched"),
        ({"content": "a text"}, "text parts as `content`"),
    ],
)
def test_an_image_that_cannot_be_read_gets_no_embedding(server: Running, wrong: dict[str, Any], sentence: str) -> None:
    with server.client() as client:
        reply = client.post("/v1/embeddings", json={"input": [wrong]})
    assert (reply.status_code, sentence in reply.json()["error"]["message"]) == (400, True), reply.text
