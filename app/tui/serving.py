"""The server for editors: runs in a thread on the chat's engine.

Knows the server; knows no widgets and no chats.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import cast

from app.server.command import PORT, EngineServer, ServerSettings, place
from app.server.sockets import Addresses, check, listening
from runtime.core.errors import SettingsError
from runtime.engine import Engine

HOST = "127.0.0.1"


# The end of an error for requests that end because the server does
ENDED = "The chat that answers here ends editor access or loads another model. Try again in a moment."


class LentEngine:
    """The chat's engine for the server, which must not close it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def close(self) -> None:
        """Do nothing: the chat closes its engine itself."""


class Serving:
    """A server that answers editors until it is stopped. Raises AddressError."""

    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        check(settings.addresses, settings.api_key)
        self._open = ExitStack()
        sockets = self._open.enter_context(listening(settings.addresses))
        self.places = " and ".join(place(sock, settings.addresses.path) for sock in sockets)
        told = replace(settings, policy=replace(settings.policy, ended=ENDED))
        self._server = EngineServer(lambda on_progress: cast("Engine", LentEngine(engine)), told)
        self._thread = Thread(target=self._server.run, args=(sockets,), name="server")
        self._thread.start()

    def summary(self) -> str:
        """Return the numbers of answered and of current requests, in words."""
        served = self._server.served
        n_now, n_done = served.is_answering + served.n_waiting, sum(served.totals.replies.values())
        return f"serving: {n_done} answered" + f", {n_now} now" * bool(n_now)

    def stop(self) -> None:
        """End every request and close the sockets; blocks until the clients are notified."""
        self._server.should_exit = True
        self._server.served.stop()
        self._thread.join()
        self._open.close()


def addresses_of(argument: str) -> Addresses:
    """Return the address for a port, the path of a Unix socket, or "" for the default port. Raises SettingsError."""
    if not argument:
        return Addresses(HOST, PORT, None)
    if not argument.isdecimal():
        return Addresses(HOST, None, Path(argument))
    if int(argument) > 65535:
        raise SettingsError(f"{argument} is not a port: ports go up to 65535. For example: /serve {PORT}")
    return Addresses(HOST, int(argument), None)
