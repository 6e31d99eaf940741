"""Unsent text is restored at the next start, however the chat ended.

Knows the store, and receives functions that read and set the text; sends nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress

import psutil
from textual.widget import Widget

from app.chats.store import Store, read_json
from app.tui.private_textual import run_reported

UNSENT = "unsent"  # preference name of the text
SAVE = 1.0  # seconds between two checks of the text


class Unsent(Widget):
    """Stores the text with this process's id; while that process runs, no other chat takes the text."""

    DEFAULT_CSS = "Unsent { display: none; }"

    def __init__(self, store: Store, written: Callable[[], str], begin: Callable[[str], object]) -> None:
        super().__init__()
        self._store, self._written, self._begin_with, self._kept = store, written, begin, ""

    def on_mount(self) -> None:
        """Restore the text of a chat that no longer runs."""
        left = read_json(self._store.preference(UNSENT))
        if left.get("text") and not runs_elsewhere(left.get("process"), left.get("began")):
            self._kept = left["text"]
            self._begin_with(self._kept)
        self.set_interval(SAVE, self.keep)

    def on_unmount(self) -> None:
        """Store the text a last time."""
        run_reported(self.app, self.keep)

    def keep(self) -> None:
        """Store the text if it has changed."""
        if (text := self._written()) != self._kept:
            self._kept = text
            here = psutil.Process()
            left = {"text": text, "process": here.pid, "began": here.create_time()}
            self._store.set_preference(UNSENT, json.dumps(left))


def runs_elsewhere(process: int | None, began: float | None) -> bool:
    """Return whether this is another process than ours, and still running."""
    with suppress(psutil.Error):
        found = psutil.Process(process)
        is_same = found.create_time() == began and found.status() != psutil.STATUS_ZOMBIE
        return is_same and found.pid != os.getpid()
    return False
