"""A running server on a thread of this process: TCP and a Unix socket, with any engine behind it; and engines in other
processes, as people have them, of which all tests of a worker share one that is as they ask.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from app.server.command import EngineServer, ModelServer, ServerSettings
from app.server.policy import ServerPolicy
from app.server.served import OpenEngine
from app.server.served_models import ServedModels
from app.server.sockets import Addresses, listening
from bench.instruments.toy import facts
from runtime.core.errors import SettingsError
from runtime.core.limits import Limits
from runtime.engine import Chunk, Engine, Options
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import Sink
from runtime.engine.process.client import EngineProcess
from runtime.engine.stats import Stats
from runtime.models.registry import load_registry
from runtime.speculative.control.explain import Pass
from tests.support.stepped import Stepping
from tests.support.waiting import PATIENCE, wait_for

LIMITS = Limits(3, 16)
READ_FILE: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 12}},
            "required": ["path"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


@dataclass
class Running:
    """A server and how to reach it."""

    server: EngineServer
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
    open_engine: OpenEngine,
    path: Path | None = None,
    api_key: str = "",
    loads: bool = True,
    allow_origins: tuple[str, ...] = (),
    shows_slots: bool = False,
    aliases: tuple[str, ...] = (),
    verbose: bool = False,
    max_tokens: int | None = None,
) -> Iterator[Running]:
    """A server until the block ends; with `loads`, from when its engine answers. The steps of an engine of this process
    are made by a thread.
    """
    loaded = threading.Event()

    def opened(on_progress: Any) -> Any:
        engine = open_engine(on_progress)
        return Stepping(engine, LIMITS) if isinstance(engine, LoadedEngine) else engine

    with listening(Addresses("127.0.0.1", 0, path)) as sockets:
        settings = ServerSettings(
            Addresses("127.0.0.1", 0, path), api_key, allow_origins=allow_origins,
            policy=ServerPolicy(aliases, shows_slots, max_tokens), verbose=verbose,
        )  # fmt: skip
        server = EngineServer(opened, settings, lambda engine: loaded.set())
        with on_thread(server, sockets, path, api_key) as here:
            if loads:
                assert loaded.wait(PATIENCE)
            yield here


@contextmanager
def running_models(models: ServedModels) -> Iterator[Running]:
    """A server of several models until the block ends."""
    with listening(Addresses("127.0.0.1", 0, None)) as sockets:
        server = ModelServer(models, ServerSettings(Addresses("127.0.0.1", 0, None), policy=models.policy))
        with on_thread(server, sockets) as here:  # type: ignore[arg-type]
            yield here


@contextmanager
def on_thread(
    server: EngineServer, sockets: Sequence[socket.socket], path: Path | None = None, api_key: str = ""
) -> Iterator[Running]:
    """The server on a thread, until the block ends."""
    thread = threading.Thread(target=server.run, args=(sockets,))
    thread.start()
    here = Running(server, sockets[0].getsockname()[1], path, api_key)
    try:
        wait_for(lambda: server.started)
        yield here
    finally:
        here.close()
        server.should_exit = True
        thread.join()


class SharedProcess(EngineProcess):
    """Outlives the servers before it."""

    def close(self) -> None:
        pass

    def forget(self) -> bool:
        """Drops a cached conversation. Are there more, or is a reply still being ended?"""
        try:
            return self.conversation("erase", 0)[0] > 0
        except SettingsError:
            return True


_shared = dict[Options, SharedProcess]()


def shared_process(**options: Any) -> SharedProcess:
    """The bundled pair with these options in another process, with an empty cache."""
    key = Options(**{"threads": 1, "limits": LIMITS} | options)
    if key not in _shared:
        _shared[key] = SharedProcess(load_registry()["demo"], key)
    wait_for(lambda: not _shared[key].forget())
    return _shared[key]


def close_shared() -> None:
    """Ends the processes that tests have shared."""
    while _shared:
        EngineProcess.close(_shared.popitem()[1])


def shared(**options: Any) -> OpenEngine:
    """Opens such an engine for a server."""
    return lambda on_progress: shared_process(**options)


open_usual, open_plain = shared(), shared(drafters=())  # with the usual drafters, and without


def named(name: str) -> Any:
    """What a formatter asks of an engine that says nothing: what it is."""
    pair = SimpleNamespace(name=name, target=Path(f"{name}.gguf"), upstream="", lora=())
    return SimpleNamespace(pair=pair, facts=facts())


def endless_request(engine: Engine) -> dict[str, Any]:
    """A request to /completion whose reply does not end by itself, with the bias in llama.cpp's form."""
    ends = [[token, False] for token in range(engine.facts.n_vocab) if engine.is_end(token)]
    return {"prompt": "import os", "temperature": 0, "logit_bias": ends}


def is_idle(here: Running) -> bool:
    """Is nothing answered, and does nobody wait?"""
    return not here.server.served.is_answering and not here.server.served.n_waiting


def events(reply: httpx2.Response) -> list[Any]:
    """What a stream says, without its end mark and its signs of life."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return [
        json.loads(line.removeprefix("data: "))
        for line in reply.text.split("\n\n")
        if line and line != "data: [DONE]" and not line.startswith(":")
    ]


def saying(here: Running, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has the model say a text, as one that reasons."""
    engine = here.server.served.engine
    thinking = replace(engine.facts, template=engine.facts.template + "{# <think> #}")
    monkeypatch.setattr(engine, "facts", thinking)

    def say(text: str, error: Exception | None = None, size: int = 3) -> None:
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        stats = Stats(steps=[Pass(0.0, "none", 0, 0, n_tokens=len(pieces))])
        last = error or Chunk("", finish_reason="stop", stats=stats)

        def add(ask: Ask, sink: Sink) -> int:
            for came in (*(Chunk(piece, (1,), pieces=(piece,)) for piece in pieces), last):
                sink(came)
            return 0

        monkeypatch.setattr(engine, "add", add)

    return say
