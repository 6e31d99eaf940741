"""Editors are answered beside the chat, if that is wanted, and counted.

Knows the session's server; knows no widget that is seen.
"""

from __future__ import annotations

import asyncio

from textual.message import Message
from textual.widget import Widget

from app.tui.session import Session
from runtime.core.errors import SettingsError, SlipstreamError

COUNT = 0.5  # seconds between two looks at what editors have asked for


class EditorAccess(Widget):
    """Lets editors in and out. Posts Counted."""

    DEFAULT_CSS = "EditorAccess { display: none; }"

    class Counted(Message):
        """What editors have asked for, in words; "" while nobody is let in."""

        def __init__(self, summary: str) -> None:
            super().__init__()
            self.summary = summary

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self._summary = ""

    def on_mount(self) -> None:
        """Counts from time to time."""
        self.set_interval(COUNT, self.count)

    def start(self) -> None:
        """Answers editors, if that is wanted and there is an engine."""
        try:
            self.session.start_serving()
        except SlipstreamError as error:
            self.notify(str(error), severity="error", markup=False)
        if self.session.serving is not None:
            self.session.note(f"answering at {self.session.serving.places}")
            self.notify(f"Editors are answered at {self.session.serving.places}", markup=False)
        self.count()

    def start_at(self, argument: str) -> None:
        """Answers editors at a port or a socket from now on, with every pair. Raises SettingsError."""
        if self.session.serving is not None:
            raise SettingsError("Editors are answered already. /serve off ends it.")
        from app.server.command import ServerSettings  # slow to import, and seldom needed
        from app.tui.serving import addresses_of

        self.session.serve = ServerSettings(
            addresses_of(argument), self.session.api_key, allow_origins=self.session.allow_origins
        )
        if self.session.engine is not None:
            self.start()

    def stop(self) -> None:
        """Answers editors no more, and says so when the socket is gone."""
        self.session.serve = None
        self.run_worker(self._stop(), group="serving")

    async def _stop(self) -> None:
        await asyncio.to_thread(self.session.stop_serving)
        self.notify("Editors are answered no more.")

    def count(self) -> None:
        """Says what editors have asked for, when that is new."""
        summary = self.session.serving.summary() if self.session.serving is not None else ""
        if summary != self._summary:
            self._summary = summary
            self.post_message(self.Counted(summary))
