"""Wakes the thread that waits for messages from the model process."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait


class Doorbell:
    """A bell that one thread hears while it waits for a message; it waits without waking up in between."""

    def __init__(self) -> None:
        self._ear, self._button = Pipe(duplex=False)
        self._is_waiting = False

    def ring(self) -> None:
        """Wake the waiting thread, if it waits."""
        if self._is_waiting:
            self._is_waiting = False
            self._button.send_bytes(b"!")

    def wait(self, pipe: Connection | None, has_work: Callable[[], bool]) -> bool:
        """Wait until there is a message, the bell rings, or there is work already. Return whether there is a message.

        Raises OSError for a closed pipe.
        """
        self._is_waiting = True
        ready = [] if has_work() else wait([self._ear, pipe] if pipe else [self._ear])
        self._is_waiting = False
        if self._ear in ready:
            self._ear.recv_bytes()
        return pipe in ready
