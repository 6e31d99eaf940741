"""Who may ask by the Host header: programs and pages of this machine, under all of its names, and nobody else."""

from __future__ import annotations

import socket
from typing import Any

import httpx2

from app.server.middleware import Guard
from app.server.sockets import is_loopback
from tests.support.serving import Running

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def refused(reply: httpx2.Response) -> None:
    assert reply.status_code == 403, reply.text
    assert reply.json()["error"]["code"] in ("wrong_host", "wrong_origin")


def test_a_strange_host_or_page_is_refused(client: httpx2.Client) -> None:
    refused(client.get("/health", headers={"host": "evil.example"}))
    refused(client.get("/health", headers={"host": "127.0.0.1.evil.example:8012"}))
    refused(client.post("/v1/chat/completions", json=CHAT, headers={"origin": "https://evil.example"}))
    refused(client.get("/health", headers={"host": "localhost.evil.example."}))
    refused(client.get("/health", headers={"host": "[::ffff:192.168.1.2]"}))
    refused(client.get("/health", headers={"host": ""}))
    mapped = ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]:8012")
    for host in ("localhost:8012", "[::1]", "127.0.0.1", "localhost.", "localhost.:8012", "127.0.0.1.:8012", *mapped):
        assert client.get("/health", headers={"host": host}).status_code == 200


def test_a_program_without_a_host_header_is_answered(here: Running) -> None:
    def first_line(request: str) -> bytes:
        with socket.create_connection(("127.0.0.1", here.port)) as sock:
            sock.sendall(f"{request}\r\n\r\n".encode())
            return sock.recv(100).splitlines()[0]

    assert b" 200 " in first_line("GET /health HTTP/1.0")
    assert b" 200 " in first_line("GET / HTTP/1.0")
    assert b" 403 " in first_line("GET /health HTTP/1.0\r\nHost: evil.example")
    assert b" 403 " in first_line("GET /health HTTP/1.0\r\nOrigin: https://evil.example")
    assert b" 400 " in first_line("GET /health HTTP/1.1")  # where the header is a must


def test_this_machine_is_told_from_others() -> None:
    ours = ("localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "localhost.", "127.0.0.1.", "::ffff:7f00:1")
    others = ("", ".", "0.0.0.0", "192.168.1.2", "localhost.evil.example", "evil-localhost", "::", "localhost..")
    assert all(map(is_loopback, ours))
    assert not any(map(is_loopback, (*others, "evil.localhost.example.", "192.168.1.2.", "::ffff:192.168.1.2")))


def test_a_unix_socket_needs_no_host_name() -> None:
    async def nothing(*_: Any) -> None:
        pass

    guard = Guard(nothing)
    scope: Any = {"type": "http", "path": "/", "server": ("/tmp/s", None)}
    assert guard.refusal(scope, {"host": "anything"}) is None
    assert guard.refusal(scope | {"server": ("127.0.0.1", 1)}, {"host": "anything"}) is not None
