"""Bodies as clients send them: packed, too long, or with what cannot be read."""

from __future__ import annotations

import gzip
import json
import zlib
from asyncio import Future, gather, run, sleep
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app.server.request_body import Inflater, Room
from tests.support.serving import open_plain, running

CHAT = json.dumps({"messages": [{"role": "user", "content": "What is a deque?"}], "max_tokens": 2}).encode()
PATHS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/completion", "/tokenize", "/v1/embeddings")
IMAGE = "data:image/png;base64,aGk="


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with running(open_plain) as here:
        yield here.client()


def post(client: httpx2.Client, body: bytes | Iterator[bytes], encoding: str, path: str = PATHS[0]) -> httpx2.Response:
    return client.post(path, content=body, headers={"content-encoding": encoding, "content-type": "application/json"})


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(CHAT, mtime=0)),
        ("GZip", gzip.compress(CHAT[:20], mtime=0) + gzip.compress(CHAT[20:], mtime=0)),
        ("x-gzip", gzip.compress(CHAT, mtime=0)),
        ("deflate", zlib.compress(CHAT)),
        ("identity", CHAT),
    ],
)
def test_a_packed_body_is_read(client: httpx2.Client, encoding: str, packed: bytes) -> None:
    assert post(client, packed, encoding).json()["usage"]["completion_tokens"] == 2
    pieces = (packed[i : i + 1] for i in range(len(packed)))
    assert post(client, pieces, encoding).status_code == 200


def test_parts_of_many_bodies_leave_turns_to_other_requests() -> None:
    turns = list[int]()

    async def body(room: Room) -> None:
        for _ in range(3):
            await room.take_turns()
            turns[-1] += 1

    async def count(bodies: Future[Any]) -> None:
        while not bodies.done():
            turns.append(0)
            await sleep(0)

    async def main() -> None:
        room = Room()
        await count(gather(*(body(room) for _ in range(20))))

    run(main())
    assert sum(turns) == 60
    assert max(turns) <= 2


@pytest.mark.parametrize("path", PATHS)
def test_a_bomb_is_refused_before_it_is_unpacked(client: httpx2.Client, path: str) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(b" " * 2**20) for _ in range(100)) + packer.flush()
    assert len(bomb) < 2**20
    refused = post(client, bomb, "gzip", path)
    assert refused.status_code == 413
    assert "longer than 32 MiB" in refused.json()["error"]["message"]


def test_no_more_is_unpacked_than_is_wanted() -> None:
    assert Inflater(31).feed(gzip.compress(b" " * 2**20), 1000) == b" " * 1000


def test_a_body_that_unpacks_to_the_limit_is_read(client: httpx2.Client) -> None:
    whole = CHAT + b" " * (32 * 2**20 - len(CHAT))
    assert post(client, gzip.compress(whole, mtime=0), "gzip").status_code == 200
    assert post(client, gzip.compress(whole + b" ", mtime=0), "gzip").status_code == 413


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", CHAT, 400),
        ("gzip", gzip.compress(CHAT, mtime=0)[:-4], 400),
        ("gzip", gzip.compress(CHAT, mtime=0) + b"more", 400),
        ("deflate", gzip.compress(CHAT, mtime=0), 400),
        ("br", CHAT, 415),
        ("gzip, gzip", gzip.compress(gzip.compress(CHAT, mtime=0), mtime=0), 415),
    ],
)
def test_what_is_packed_otherwise_is_refused(client: httpx2.Client, encoding: str, body: bytes, status: int) -> None:
    refused = post(client, body, encoding)
    assert refused.status_code == status
    assert "Content-Encoding" in refused.json()["error"]["message"]


def said(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": "hi"}, part]}]


IMAGES: list[tuple[str, dict[str, Any]]] = [
    *((path, {"messages": said({"type": "image_url", "image_url": {"url": IMAGE}})})
      for path in ("/v1/chat/completions", "/apply-template")),
    ("/v1/chat/completions", {"messages": said({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})}),
    *((path, {"input": given})
      for path in ("/v1/responses", "/v1/responses/input_tokens")
      for given in (said({"type": "input_image", "image_url": IMAGE}), [{"type": "input_image", "image_url": IMAGE}])),
    *((path, {"max_tokens": 1, "messages": said(part)})
      for path in ("/v1/messages", "/v1/messages/count_tokens")
      for part in [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]),
    *((path, {"prompt": "hi", "input_prefix": "", "input_suffix": "", "image_data": [{"data": "aGk=", "id": 1}]})
      for path in ("/completion", "/infill")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), IMAGES)
def test_an_image_is_refused_in_one_sentence(client: httpx2.Client, path: str, body: dict[str, Any]) -> None:
    refused = client.post(path, json=body)
    message = refused.json()["error"]["message"]
    assert refused.status_code == 400
    assert message.endswith(" input is not supported, so leave it out.")
    assert message.count(". ") == 0
