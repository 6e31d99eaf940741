"""Clients that add to the address what is there already, or ask at another server's paths, are answered."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from app.server.middleware import usual
from tests.support.serving import open_plain, running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/"),
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/v1/models", "/v1/models"),
        ("/v1/engines/qwen:7b/completions", "/v1/completions"),
        ("/v1/fim/completions", "/v1/completions"),
        ("/beta/completions", "/completions"),
        ("/beta/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1", "/v1/v1"),
        ("/engines/x/y/completions", "/engines/x/y/completions"),
        ("/v1/models/fim/completions", "/v1/models/fim/completions"),
    ],
)
def test_a_path_is_spelled_as_the_endpoints_are(path: str, expected: str) -> None:
    assert usual(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/v1/v1/completions",
        "/v1/completions/",
        "/v1/engines/demo/completions",
        "/v1/fim/completions",
        "/beta/completions",
    ],
)
def test_a_completion_is_had_at_other_spellings_without_a_redirect(client: httpx2.Client, path: str) -> None:
    body = {"prompt": "def add(", "suffix": False, "max_tokens": 2}
    reply = client.post(path, json=body, follow_redirects=False)
    assert reply.status_code == 200
    assert reply.json()["object"] == "text_completion"


def test_what_is_nowhere_is_still_not_found(client: httpx2.Client) -> None:
    assert client.post("/v1/engines/completions", json={}).status_code == 404
