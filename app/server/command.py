"""`slipstream serve`: sockets, signals, the server's life from loading to a clean end. Leaves options to cli.py."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from app.server.application import application
from app.server.sockets import Addresses, check, listening
from app.server.worker import OpenEngine, Worker

PATIENCE = 5  # seconds for clients to take the last chunk of their replies
PORT = 8012


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server meets its clients."""

    addresses: Addresses
    api_key: str = ""
    max_waiting: int = 16  # requests in line; more are sent away
    max_active: int = 3  # chats that are answered in turns; a short completion goes before them


class Server(uvicorn.Server):
    """A web server with an engine. `failure` is what kept the engine from loading."""

    def __init__(
        self, open_engine: OpenEngine, settings: Settings, on_loaded: Callable[[], None] = lambda: None
    ) -> None:
        self.worker = Worker(open_engine, settings.max_waiting, on_loaded, self._on_failed, settings.max_active)
        self.failure: Exception | None = None
        app = application(self.worker, settings.api_key)
        config = uvicorn.Config(
            app, lifespan="off", ws="none", access_log=False, log_level="warning", server_header=False,
            timeout_graceful_shutdown=PATIENCE
        )  # fmt: skip
        super().__init__(config)

    def _on_failed(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Until a signal, or until loading fails. Raises what loading failed with."""
        self.worker.start()
        try:
            super().run(sockets)
        finally:
            self.worker.stop()
            self.worker.join()
        if self.failure is not None:
            raise self.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Replies end with an error first, so that their connections can close."""
        self.worker.stop()
        await super().shutdown(sockets)


@contextmanager
def outliving_signals() -> Iterator[None]:
    """Uvicorn ends on these signals and then raises them once more: that must not cut off what is to be closed after
    it.
    """
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def place(sock: socket.socket, path: Path | None) -> str:
    """Where a socket listens, as a client would name it."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return str(path)
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def serve(open_engine: OpenEngine, settings: Settings) -> None:
    """Until Ctrl+C or SIGTERM. Raises AddressError, and what the engine cannot be loaded with."""
    check(settings.addresses, settings.api_key)
    with listening(settings.addresses) as sockets, outliving_signals():
        places = " and ".join(place(sock, settings.addresses.path) for sock in sockets)
        server = Server(open_engine, settings, lambda: announce(places, server.worker.engine.fit))
        server.run(sockets)


def announce(places: str, fit: str) -> None:
    """Where it answers, and what was loaded given the memory that was free."""
    print(f"slipstream: answering at {places}" + (f"\nslipstream: {fit}" if fit else ""), file=sys.stderr, flush=True)
