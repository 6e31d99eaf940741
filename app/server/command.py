"""`slipstream serve`: sockets, signals, and the server's life from loading to a clean shutdown.

Must not know the command line's options.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
import time
from asyncio import Transport
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.server.application import application
from app.server.known_models import listed
from app.server.middleware import RequestLog, on_stderr
from app.server.policy import DEFAULT_POLICY, ServerPolicy
from app.server.request_body import MIB
from app.server.served import OpenEngine, ServedEngine
from app.server.served_models import ServedModels, one_model
from app.server.sockets import OLLAMA_PORT, Addresses, check, listening
from app.terminal import Interrupt, print_message
from runtime.engine import Engine

POLL_INTERVAL = 0.05  # seconds between checks whether replies have ended
SHUTDOWN_TIMEOUT = 5  # seconds for clients to receive the last chunk
PORT = 8012
MMAP_THRESHOLD = -3  # glibc's M_MMAP_THRESHOLD: bytes from which on a block is mapped
ENDING = "running replies may continue for {:g} s. Ctrl+C again ends them"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens, and who may use it for what."""

    addresses: Addresses
    api_key: str = ""
    allow_origins: tuple[str, ...] = ()  # apps and pages that are admitted without a key
    quiet: bool = False  # no line for each request
    policy: ServerPolicy = DEFAULT_POLICY
    drain: float = 0.0  # seconds that running replies may continue after a shutdown signal
    slot_folder: Path | None = None  # where clients may save conversations
    verbose: bool = False  # whether log lines include changes to the conversation


class ModelServer(uvicorn.Server):
    """Uvicorn with models behind it. `failure` is the error that prevented loading the only one."""

    def __init__(self, models: ServedModels, settings: ServerSettings) -> None:
        self.models = models
        self.failure: Exception | None = None
        self.settings = settings
        self.app = application(self.models, settings.api_key, settings.allow_origins)
        self.app.state.slot_folder = settings.slot_folder
        config = uvicorn.Config(  # h11 even if httptools is installed, which does not limit headers
            RequestLog(self.app, settings.verbose), lifespan="off", ws="none", http=AddressedConnection,
            access_log=False, log_level="warning", server_header=False, timeout_graceful_shutdown=SHUTDOWN_TIMEOUT
        )  # fmt: skip
        super().__init__(config)

    def fail(self, error: Exception) -> None:
        """Shut down, because of this error."""
        self.failure, self.should_exit = error, True

    def end(self) -> None:
        """Shut down as at SIGTERM. Returns immediately."""
        self.should_exit = True

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives or loading fails. Raises the error of a failed load."""
        return_memory()
        self.app.state.places = [place(sock, self.settings.addresses.path) for sock in sockets or ()]
        self.models.start()
        try:
            super().run(sockets)
        finally:
            self.models.stop()
            self.models.join()
        if self.failure is not None:
            raise self.failure

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the replies first, so that their connections can close: after the drain time, or immediately at a second
        signal.
        """
        self.models.stop(ends_active=False)
        if self.settings.drain and self.models.is_answering:
            print_message(ENDING.format(self.settings.drain))
        deadline = time.monotonic() + self.settings.drain
        while self.models.is_answering and not self.force_exit and time.monotonic() < deadline:
            await asyncio.sleep(POLL_INTERVAL)
        self.models.stop()
        await super().shutdown(sockets)


class EngineServer(ModelServer):
    """A server with a single model, which is loaded at the start and answers to any name."""

    def __init__(
        self,
        open_engine: OpenEngine,
        settings: ServerSettings,
        on_loaded: Callable[[Engine], None] = lambda engine: None,
    ) -> None:
        self.served = ServedEngine(open_engine, on_loaded, self.fail, settings.policy)
        super().__init__(one_model(self.served), settings)


def return_memory() -> None:
    """Make the C library (glibc) return the memory of large bodies to the system. By default it keeps blocks of a size
    that it has seen before.
    """
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(MMAP_THRESHOLD, MIB // 8)


def place(sock: socket.socket, path: Path | None) -> str:
    """Return a socket's address as a client would write it."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return str(path)
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def serve(source: OpenEngine | ServedModels, settings: ServerSettings) -> None:
    """Serve one model that is opened now, or several, until Ctrl+C, SIGTERM or SIGHUP.

    Raises AddressError, the error of a failed load, and SystemExit.
    """
    check(settings.addresses, settings.api_key)
    log = nullcontext() if settings.quiet else on_stderr()
    with Interrupt().watching() as interrupt, log, listening(settings.addresses) as sockets:
        places = [place(sock, settings.addresses.path) for sock in sockets]
        told = [f"answering at {' and '.join(places)}", *ollama_note(settings.addresses, places)]
        if isinstance(source, ServedModels):
            announce_models(told, source)
            server = ModelServer(source, settings)
        else:
            server = EngineServer(source, settings, partial(announce, told))
        interrupt.heed(server.end)  # uvicorn knows no SIGHUP; the others it raises again after its end
        server.run(sockets)
    if interrupt.pressed:
        raise SystemExit(interrupt.code)


def ollama_note(addresses: Addresses, places: Sequence[str]) -> Iterator[str]:
    """Yield a note if Ollama's port was requested but is taken by another program."""
    if addresses.ollama and not any(place.endswith(f":{OLLAMA_PORT}/v1") for place in places):
        yield (
            f"port {OLLAMA_PORT} is taken, perhaps by Ollama: end it and start again, or give its clients the address "
            f"{places[0].removesuffix('/v1')}"
        )


def announce(told: Sequence[str], engine: Engine) -> None:
    """Print the lines of `told`, what was loaded in the free memory, and what is missing."""
    for line in (*told, *notes(engine)):
        print_message(line)


def notes(engine: Engine) -> list[str]:
    """Return what was loaded in the free memory, and what is missing."""
    fit = "" if engine.facts.fit in engine.facts.left_out else engine.facts.fit
    return [*filter(None, (fit, engine.facts.left_out))]


def announce_models(told: Sequence[str], models: ServedModels) -> None:
    """Print the lines of `told`, and the models' names."""
    names = listed([each.name for each in models.models])
    for line in (*told, f"{len(models.models)} models, each loaded when a request names it: {names}"):
        print_message(line)


class AddressedConnection(H11Protocol):
    """Uvicorn's connection, with the address from the transport where the socket no longer has it."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Record the client's address."""
        super().connection_made(transport)
        if self.client is None and isinstance(peer := transport.get_extra_info("peername"), tuple):
            self.client = (str(peer[0]), int(peer[1]))
