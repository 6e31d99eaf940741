"""What is written and was not sent is there again at the next start, however the chat ended.

Knows the store, and is told how to read and begin a text; sends nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress

import psutil
from textual.widget import Widget

from app.chats.store import Store, read_json

UNSENT = "unsent"  # the store's name for it
SAVE = 1.0  # seconds between two looks at what is written


class Unsent(Widget):
    """Keeps the text with the number of this process, whose own it is as long as that runs."""

    DEFAULT_CSS = "Unsent { display: none; }"

    def __init__(self, store: Store, written: Callable[[], str], begin: Callable[[str], object]) -> None:
        super().__init__()
        self._store, self._written, self._begin_with, self._kept = store, written, begin, ""

    def on_mount(self) -> None:
        """Begins with what a chat that runs no more has left."""
        left = read_json(self._store.preference(UNSENT))
        if left.get("text") and not runs_elsewhere(left.get("process"), left.get("began")):
            self._kept = left["text"]
            self._begin_with(self._kept)
        self.set_interval(SAVE, self.keep)

    def on_unmount(self) -> None:
        """All is kept."""
        self.keep()

    def keep(self) -> None:
        """Writes what has changed."""
        if (text := self._written()) != self._kept:
            self._kept = text
            here = psutil.Process()
            left = {"text": text, "process": here.pid, "began": here.create_time()}
            self._store.set_preference(UNSENT, json.dumps(left))


def runs_elsewhere(process: int | None, began: float | None) -> bool:
    """Is it another process than this, and does it still run?"""
    with suppress(psutil.Error):
        found = psutil.Process(process)
        is_same = found.create_time() == began and found.status() != psutil.STATUS_ZOMBIE
        return is_same and found.pid != os.getpid()
    return False
