"""Clients that vanish: their replies stop, they leave the queue, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import uvicorn
from uvicorn.server import ServerState

from app.server.command import AddressedConnection
from runtime.backends.stored.saved_states import no_room
from runtime.core.limits import Limits
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.serving import Running, endless_request, is_idle, running, shared
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(shared(drafters=(), limits=Limits(3, 2))) as found:
        yield found


@pytest.fixture(scope="module")
def endless(open_demo: OpenEngine) -> dict[str, Any]:
    return endless_request(open_demo(threads=1)) | {"n_predict": -1, "stream": True}


def counted(here: Running, reason: str) -> int:
    return here.server.served.totals.replies[reason]


def test_a_client_that_vanishes_stops_its_reply(here: Running, endless: dict[str, Any]) -> None:
    before, said = counted(here, "cancelled"), here.server.served.totals.predicted_n
    with here.client().stream("POST", "/completion", json=endless) as reply:
        next(reply.iter_lines())
    wait_for(lambda: is_idle(here))
    assert counted(here, "cancelled") == before + 1
    assert here.server.served.totals.predicted_n - said < 1000


def test_a_client_that_vanishes_unanswered_stops_its_reply_too(here: Running, endless: dict[str, Any]) -> None:
    before = counted(here, "cancelled")
    body = json.dumps(endless | {"stream": False}).encode()
    with socket.create_connection(("127.0.0.1", here.port)) as sock:
        sock.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: here.server.served.is_answering)
    wait_for(lambda: is_idle(here))
    assert counted(here, "cancelled") == before + 1


def test_a_client_that_vanishes_in_line_leaves_it(here: Running, endless: dict[str, Any]) -> None:
    body, state = json.dumps(endless).encode(), here.server.server_state
    with here.client().stream("POST", "/completion", json=endless) as reply:
        lines = reply.iter_lines()  # held, because the connection ends with it
        next(lines)
        with socket.create_connection(("127.0.0.1", here.port)) as sock:
            sock.sendall(
                b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            wait_for(lambda: here.server.served.n_waiting == 1)
        wait_for(lambda: len(state.tasks) == 1)
        assert here.server.served.is_answering
    wait_for(lambda: is_idle(here) and not state.tasks)


@pytest.mark.parametrize("n_kept", [1, 4])
def test_clients_that_drop_at_random_leave_nothing_behind(endless: dict[str, Any], n_kept: int) -> None:
    def opened(on_progress: Any) -> LoadedEngine:
        engine = LoadedEngine(load_registry()["demo"], Options(threads=1, drafters=(), slots=n_kept), on_progress)
        engine.decoder.target.backend.saved.room = no_room  # type: ignore[attr-defined]
        return engine

    with running(opened) as here:
        drop_at_random(here, endless)
        assert here.client().post("/completion", json={"prompt": "x", "n_predict": 1}).status_code == 200
        assert here.server.served.status.n_held <= n_kept


def drop_at_random(here: Running, endless: dict[str, Any]) -> None:
    body = json.dumps(endless).encode()
    request = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    chance = random.Random(5)

    async def drop() -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(request[: chance.randrange(len(request) * 2)])
        await asyncio.sleep(chance.random() / 10)
        if chance.random() < 0.5:
            writer.transport.abort()
        writer.close()

    async def all_drop() -> None:
        await asyncio.gather(*(drop() for _ in range(100)))

    wait_for(lambda: not here.server.server_state.connections)
    n_files = psutil.Process().num_fds()
    asyncio.run(all_drop())
    wait_for(lambda: is_idle(here) and not here.server.server_state.connections and not here.server.server_state.tasks)
    wait_for(lambda: psutil.Process().num_fds() <= n_files)


def test_the_log_tells_of_who_gave_up_before_the_first_token(
    here: Running, endless: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.server.task_response.PING", 0.02)
    caplog.set_level("INFO", logger="app.server.middleware")
    body = json.dumps(endless | {"stream": True}).encode()
    with here.client().stream("POST", "/completion", json=endless) as reply:
        next(lines := reply.iter_lines())
        with here.client().stream("POST", "/completion", json=endless) as other:
            next(other.iter_lines())
            with socket.create_connection(("127.0.0.1", here.port)) as sock:
                head = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
                sock.sendall(head + body)
                assert sock.recv(100).startswith(b"HTTP/1.1 200")
                assert here.server.served.n_waiting
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it is reset
                address = "{}:{}".format(*sock.getsockname())
            wait_for(lambda: any(address in line for line in caplog.messages))
        next(lines)
    wait_for(lambda: is_idle(here))
    (line,) = [line for line in caplog.messages if address in line]
    assert '" 499, ' in line
    assert all(line.startswith("127.0.0.1:") for line in caplog.messages)


def test_a_connection_that_was_reset_before_it_was_looked_at_is_told_by_its_address() -> None:
    class Reset(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            gone = socket.socket()  # has no peer
            return {"socket": gone, "peername": ("127.0.0.1", 7)}.get(name, default)

    config = uvicorn.Config(lambda: None, http=AddressedConnection)
    config.load()
    connection = AddressedConnection(config, ServerState(), {}, asyncio.new_event_loop())
    connection.connection_made(Reset())
    assert connection.client == ("127.0.0.1", 7)
