"""Timeouts of replies in the model process: for their start, and for the end of cancelled ones.

Knows reply numbers and times.
"""

from __future__ import annotations

import time

from runtime.engine.output import Output


class Underway:
    """Times at which replies were added and cancelled, and the active ones: while one is active, others may wait."""

    def __init__(self) -> None:
        self._begun = dict[int, float]()  # time of adding, for replies without an output so far
        self._cancelled = dict[int, float]()
        self._decoded = set[int]()
        self._received_at = 0.0  # time of the last message from the process

    @property
    def is_active(self) -> bool:
        """Whether a reply is wanted."""
        return bool(self._begun or self._decoded)

    def receive(self) -> None:
        """Record a message from the process, which therefore is not stuck."""
        self._received_at = time.monotonic()

    def add(self, number: int) -> None:
        """Record that a reply was added."""
        self._begun[number] = time.monotonic()

    def cancel(self, number: int) -> None:
        """Record that a reply was cancelled."""
        if number in self._decoded or self._begun.pop(number, None) is not None:
            self._decoded.discard(number)
            self._cancelled.setdefault(number, time.monotonic())

    def note(self, output: Output) -> None:
        """Record an output of a reply."""
        number, came = output
        self._begun.pop(number, None)
        if isinstance(came, Exception) or came.finish_reason:
            self._decoded.discard(number)
            self._cancelled.pop(number, None)
        elif number not in self._cancelled:
            self._decoded.add(number)

    def overdue(self, begin: float, heed: float) -> int | None:
        """Return the number of a reply that has not begun within `begin` seconds, 0 if a cancelled one has not ended
        within `heed` seconds, else None. Both count from the last message of the process at the earliest.
        """
        if self._decoded:
            return None
        now = time.monotonic()

        def waited(since: float) -> float:
            return now - max(since, self._received_at)

        if any(waited(since) > heed for since in self._cancelled.values()):
            return 0
        return next((number for number, since in self._begun.items() if waited(since) > begin), None)
