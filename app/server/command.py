"""`slipstream serve`: sockets, signals, the server's life from loading to a clean end.

Must not know the command line's options.
"""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from app.server import request_log
from app.server.application import application
from app.server.connections import AddressedConnection
from app.server.policy import USUAL, ServerPolicy
from app.server.request_body import MIB
from app.server.request_log import RequestLog
from app.server.sockets import OLLAMA_PORT, Addresses, check, listening
from app.server.worker import OpenEngine, Worker
from runtime.engine import Engine

LOOK = 0.05  # seconds between two looks at whether replies have ended
PATIENCE = 5  # seconds for clients to take the last chunk of their replies
PORT = 8012
MMAP_THRESHOLD = -3  # glibc's number of the option: bytes of a block from which on it is the system's
ENDING = "replies that are being made may go on for {:g} s. Ctrl+C again ends them"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens, who may use it, and how many requests it takes."""

    addresses: Addresses
    api_key: str = ""
    max_waiting: int = 16  # requests in the queue; more are sent away
    max_active: int = 3  # long tasks, such as chats, that run in turns; a short one goes before them
    allow_origins: tuple[str, ...] = ()  # apps and pages that may ask without a key
    quiet: bool = False  # no line for each request
    policy: ServerPolicy = USUAL
    drain: float = 0.0  # seconds that running replies may still have when it is to end
    slot_folder: Path | None = None  # where clients may save conversations
    verbose: bool = False  # does a line say what was changed in the conversation?


class EngineServer(uvicorn.Server):
    """Uvicorn with an engine behind it. `failure` is what kept the engine from loading."""

    def __init__(
        self, open_engine: OpenEngine, settings: ServerSettings, on_loaded: Callable[[], None] = lambda: None
    ) -> None:
        self.worker = Worker(
            open_engine, settings.max_waiting, on_loaded, self._on_failed, settings.max_active, settings.policy
        )
        self.failure: Exception | None = None
        self.settings = settings
        self.app = application(self.worker, settings.api_key, settings.allow_origins)
        self.app.state.slot_folder = settings.slot_folder
        config = uvicorn.Config(  # h11 even where httptools is there, which reads headers without end
            RequestLog(self.app, settings.verbose), lifespan="off", ws="none", http=AddressedConnection,
            access_log=False, log_level="warning", server_header=False, timeout_graceful_shutdown=PATIENCE
        )  # fmt: skip
        super().__init__(config)

    def _on_failed(self, error: Exception) -> None:
        self.failure, self.should_exit = error, True

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until a signal comes or loading fails. Raises what loading failed with."""
        return_memory()
        self.app.state.places = [place(sock, self.settings.addresses.path) for sock in sockets or ()]
        self.worker.start()
        try:
            super().run(sockets)
        finally:
            self.worker.stop()
            self.worker.join()
        if self.failure is not None:
            raise self.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends replies first, so that their connections can close: after a while, or when it is told once more."""
        self.worker.stop(ends_active=False)
        if self.settings.drain and self.worker.is_answering:
            print(f"slipstream: {ENDING.format(self.settings.drain)}", file=sys.stderr, flush=True)
        deadline = time.monotonic() + self.settings.drain
        while self.worker.is_answering and not self.force_exit and time.monotonic() < deadline:
            await asyncio.sleep(LOOK)
        self.worker.stop()
        await super().shutdown(sockets)


def return_memory() -> None:
    """Has the C library return what large bodies took: it keeps blocks of a size that it has seen before (glibc)."""
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(MMAP_THRESHOLD, MIB)


@contextmanager
def outliving_signals() -> Iterator[None]:
    """Ignores the signals that end a server: uvicorn raises them once more after its own end, which must not cut off
    what the block has yet to close.
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


def serve(open_engine: OpenEngine, settings: ServerSettings) -> None:
    """Serves until Ctrl+C or SIGTERM. Raises AddressError, and what loading the engine failed with."""
    check(settings.addresses, settings.api_key)
    log = nullcontext() if settings.quiet else request_log.on_stderr()
    with log, listening(settings.addresses) as sockets, outliving_signals():
        places = [place(sock, settings.addresses.path) for sock in sockets]
        told = [f"answering at {' and '.join(places)}", *ollama_note(settings.addresses, places)]
        server = EngineServer(open_engine, settings, lambda: announce(told, server.worker.engine))
        server.run(sockets)


def ollama_note(addresses: Addresses, places: Sequence[str]) -> Iterator[str]:
    """Yield what to say where Ollama's port was wanted and is another program's."""
    if addresses.ollama and not any(place.endswith(f":{OLLAMA_PORT}/v1") for place in places):
        yield (
            f"port {OLLAMA_PORT} is taken, perhaps by Ollama: end it and start again, or give its clients the address "
            f"{places[0].removesuffix('/v1')}"
        )


def announce(told: Sequence[str], engine: Engine) -> None:
    """Prints what is `told` of where the server answers, what was loaded in the free memory, and what is lacking."""
    fit = "" if engine.facts.fit in engine.facts.left_out else engine.facts.fit
    for line in filter(None, (*told, fit, engine.facts.left_out)):
        print(f"slipstream: {line}", file=sys.stderr, flush=True)
