"""Sends messages on a thread of its own, so that a sender never waits for the other side, which may be writing."""

from __future__ import annotations

from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread


class Outgoing:
    """Messages that are sent in order. When the other side is gone they are dropped; its reader notices."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._queue = pipe, SimpleQueue[bytes]()
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: bytes) -> None:
        """Send a message soon."""
        self._queue.put(message)

    def end(self) -> None:
        """End the thread; the other side must be gone, or may read what was put."""
        self._queue.put(b"")
        self._thread.join()

    def _send(self) -> None:
        while message := self._queue.get():
            try:
                self._pipe.send_bytes(message)
            except OSError:
                return
