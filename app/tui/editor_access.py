"""The server for editors is started and stopped, and its requests are counted.

Knows the session's server; knows no visible widget.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from textual.message import Message

from app.tui.pace import Invisible
from app.tui.session import Session
from runtime.core.errors import SettingsError, SlipstreamError

COUNT = 0.5  # seconds between two counts of the editors' requests


class EditorAccess(Invisible):
    """Starts and stops the server for editors. Posts Counted."""

    @dataclass
    class Counted(Message):
        """The number of requests from editors, in words; "" while the server is off."""

        summary: str

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._summary = ""

    def on_mount(self) -> None:
        """Start counting requests."""
        self.set_interval(COUNT, self.count)

    def start(self) -> None:
        """Answer editors if that is enabled and there is an engine, unless they are answered already."""
        if self.session.serving is not None:
            return
        try:
            self.session.start_serving()
        except SlipstreamError as error:
            self.notify(str(error), severity="error")
        if self.session.serving is not None:
            self.session.note(f"answering at {self.session.serving.places}")
            self.notify(f"Editor access is on at {self.session.serving.places}")
        self.count()

    def enable(self, argument: str) -> None:
        """Answer editors at a port or a socket once `start` is called, also with other pairs. Raises SettingsError and
        AddressError.
        """
        if self.session.serving is not None:
            raise SettingsError("Editor access is on already. /serve off ends it.")
        from app.server.command import ServerSettings  # slow to import, and seldom needed
        from app.server.sockets import listening
        from app.tui.serving import addresses_of

        addresses = addresses_of(argument)
        with listening(addresses):  # before a model is loaded for it
            pass
        given = self.session.given
        self.session.serve = ServerSettings(addresses, given.api_key, allow_origins=given.allow_origins)

    def stop(self) -> None:
        """Stop answering editors, and notify once the socket is closed."""
        self.session.serve = None
        self.run_worker(self._stop(), group="serving")

    async def _stop(self) -> None:
        await asyncio.to_thread(self.session.stop_serving)
        self.notify("Editor access is off.")

    def count(self) -> None:
        """Post the number of requests if it has changed."""
        summary = self.session.serving.summary() if self.session.serving is not None else ""
        if summary != self._summary:
            self._summary = summary
            self.post_message(self.Counted(summary))
