"""A running server on a thread of this process: TCP and a Unix socket, with any engine behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from app.server.command import Server, Settings
from app.server.sockets import Addresses, listening
from app.server.worker import OpenEngine

PATIENCE = 60  # seconds until something must have happened on a busy machine


@dataclass
class Running:
    """A server and how to reach it."""

    server: Server
    port: int
    path: Path | None
    api_key: str = ""
    _clients: list[httpx2.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **more: Any) -> httpx2.Client:
        client = httpx2.Client(base_url=self.url, timeout=PATIENCE, **more)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@contextmanager
def running(
    open_engine: OpenEngine, path: Path | None = None, api_key: str = "", max_waiting: int = 16, loads: bool = True
) -> Iterator[Running]:
    """A server until the block ends; with `loads`, from when its engine answers."""
    loaded = threading.Event()
    with listening(Addresses("127.0.0.1", 0, path)) as sockets:
        server = Server(open_engine, Settings(Addresses("127.0.0.1", 0, path), api_key, max_waiting), loaded.set)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()
        if loads:
            assert loaded.wait(PATIENCE)
        here = Running(server, sockets[0].getsockname()[1], path, api_key)
        try:
            wait_for(lambda: server.started)
            yield here
        finally:
            here.close()
            server.should_exit = True
            thread.join()


def wait_for(done: Any) -> None:
    """Until `done()`; fails when that takes too long."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)
