"""HTTP as it arrives, by either parser: what is bounded, what is answered, and in which order."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

from app.server import connections
from app.server.connections import AddressedConnection
from app.server.fast_connection import MAX_AHEAD, FastConnection
from tests.support.waiting import PATIENCE, wait_for

HOST = b"Host: localhost\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
MUCH = 2**23  # bytes that nobody should take in


class EchoServer:
    """Answers with its request's path and body; /wait only when that is allowed, or its client has left."""

    def __init__(self, kind: type[asyncio.Protocol]) -> None:
        self.began, self.left, self.headers = list[str](), list[str](), dict[str, list[bytes]]()
        self.go = threading.Event()
        self.port = 0
        config = uvicorn.Config(
            self.answer, http=kind, ws="none", lifespan="off", interface="asgi3", log_level="critical"
        )
        self.server = uvicorn.Server(config)

    async def answer(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        assert scope["type"] == "http"
        path = scope["path"]
        self.began.append(path)
        body, more = b"", True
        while more and (message := await receive())["type"] == "http.request":
            body, more = body + message["body"], message["more_body"]
        self.headers[path] = [name for name, _ in scope["headers"]]
        if path == "/wait":
            watcher = asyncio.ensure_future(receive())
            while not self.go.is_set() and not watcher.done():
                await asyncio.sleep(0.01)
            if watcher.done():
                self.left.append(path)
            watcher.cancel()
        said = path.encode() + b" " + body
        start = [(b"content-length", b"%d" % len(said))]
        await send({"type": "http.response.start", "status": 200, "headers": start})  # type: ignore[typeddict-item]
        await send({"type": "http.response.body", "body": said, "more_body": False})

    def ask(self, *pieces: bytes) -> bytes:
        """Send pieces, and return all that is answered until the connection is closed, or silent for a while."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as client:
            for piece in pieces:
                client.sendall(piece)
            return until_silent(client)


def until_silent(client: socket.socket) -> bytes:
    """Return what comes until the end, or half a second without anything after the first bytes."""
    found = b""
    with suppress(TimeoutError, ConnectionError):
        while piece := client.recv(2**16):
            found += piece
            client.settimeout(0.5)
    return found


def next_answer(client: socket.socket, end: bytes) -> bytes:
    """Return what comes until that end."""
    found = b""
    while not found.endswith(b"\r\n\r\n" + end):
        piece = client.recv(2**16)
        assert piece, found
        found += piece
    return found


@pytest.fixture(params=[FastConnection, AddressedConnection], ids=["httptools", "h11"])
def kind(request: pytest.FixtureRequest) -> type[asyncio.Protocol]:
    found: type[asyncio.Protocol] = request.param
    return found


@pytest.fixture
def echo(kind: type[asyncio.Protocol]) -> Iterator[EchoServer]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        here = EchoServer(kind)
        here.port = listening.getsockname()[1]
        thread = threading.Thread(target=here.server.run, args=([listening],))
        thread.start()
        wait_for(lambda: here.server.started)
        yield here
        here.go.set()
        here.server.should_exit = True
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nX: ",
        b"GET / HTTP/1.1\r\n",
        CHUNKED + b"5;",
        CHUNKED + b"0\r\n",
        CHUNKED + b"0\r\nX: ",
    ],
    ids=["path", "value", "headers", "extension", "trailers", "trailer"],
)
def test_what_has_no_end_is_cut_off(echo: EchoServer, head: bytes) -> None:
    line = b"A: b\r\n" if head.endswith(b"\r\n") else b"abcd"
    n_sent = 0
    with socket.create_connection(("127.0.0.1", echo.port), timeout=PATIENCE) as client:
        with suppress(ConnectionError):
            client.sendall(head)
            while n_sent < MUCH:
                n_sent += client.send(line * 1000)
        assert until_silent(client)[:12] in (b"", b"HTTP/1.1 400")
    assert n_sent < MUCH


def test_requests_sent_together_are_answered_in_order(echo: EchoServer) -> None:
    one = b"POST /%d HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
    answer = echo.ask(b"".join(one % i for i in range(20)))
    assert [line for line in answer.split(b"\r\n") if line.startswith(b"/")][-1:] == [b"/19 abc"]
    assert echo.began == [f"/{i}" for i in range(20)]


def test_only_so_many_requests_are_kept_until_their_turn() -> None:
    for echo in each_echo(FastConnection):
        one = b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n"
        with socket.create_connection(("127.0.0.1", echo.port), timeout=PATIENCE) as client:
            client.sendall(one * MAX_AHEAD * 20)
            wait_for(lambda echo=echo: bool(echo.began))
            echo.go.set()
            answer = until_silent(client)
        assert answer.count(b"HTTP/1.1 200") <= MAX_AHEAD


def each_echo(kind: type[asyncio.Protocol]) -> Iterator[EchoServer]:
    return echo.__wrapped__(kind)  # type: ignore[attr-defined, no-any-return]


def test_a_client_that_leaves_ends_its_request_although_others_follow(echo: EchoServer) -> None:
    with socket.create_connection(("127.0.0.1", echo.port), timeout=PATIENCE) as client:
        client.sendall(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\nGET /next HTTP/1.1\r\n" + HOST + b"\r\n")
        wait_for(lambda: echo.began == ["/wait"])
    wait_for(lambda: echo.left == ["/wait"])


def test_a_request_is_answered_although_no_http_follows(echo: EchoServer) -> None:
    answer = echo.ask(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx\x00\x01 more than was said")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"/a x" in answer


@pytest.mark.parametrize("hosts", [b"", HOST + HOST])
def test_a_request_names_one_host(echo: EchoServer, hosts: bytes) -> None:
    assert echo.ask(b"GET / HTTP/1.1\r\n" + hosts + b"\r\n").startswith(b"HTTP/1.1 400")
    assert echo.began == []


def test_old_http_needs_no_host(echo: EchoServer) -> None:
    assert echo.ask(b"GET /old HTTP/1.0\r\n\r\n").endswith(b"/old ")


def test_a_trailer_is_no_header(echo: EchoServer) -> None:
    assert echo.ask(CHUNKED + b"2\r\nab\r\n0\r\nAuthorization: x\r\n\r\n").endswith(b"/ ab")
    assert b"authorization" not in echo.headers["/"]


def test_an_offer_of_another_protocol_is_not_taken_up(echo: EchoServer) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    asked = b"POST /java?%d HTTP/1.1\r\n" + HOST + offer + b"Content-Length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", echo.port), timeout=PATIENCE) as client:
        for i in range(3):
            client.sendall(asked % i)
            assert next_answer(client, b"/java {}").startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /after HTTP/1.1\r\n" + HOST + b"\r\n")
        next_answer(client, b"/after ")


def test_a_client_may_wait_until_its_body_is_wanted(echo: EchoServer) -> None:
    head = b"POST /big HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    with socket.create_connection(("127.0.0.1", echo.port), timeout=PATIENCE) as client:
        client.sendall(head)
        assert client.recv(100).startswith(b"HTTP/1.1 100")
        client.sendall(b"ok")
        assert until_silent(client).endswith(b"/big ok")


def test_a_request_may_come_byte_by_byte(echo: EchoServer) -> None:
    whole = CHUNKED + b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert echo.ask(*(bytes([byte]) for byte in whole)).endswith(b"/ abcde")


def test_without_httptools_h11_reads_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.connection_class() is FastConnection
    monkeypatch.setitem(sys.modules, "app.server.fast_connection", None)
    assert connections.connection_class() is AddressedConnection
