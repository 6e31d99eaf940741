"""How long replies may take to begin and to heed a cancel, in the process that makes them. Knows numbers and times."""

from __future__ import annotations

import time

from runtime.engine.output import Output


class Underway:
    """When replies were added and cancelled, and which are being made: while one is, others may have to wait."""

    def __init__(self) -> None:
        self._begun = dict[int, float]()  # when those were added of which nothing has come
        self._cancelled = dict[int, float]()
        self._made = set[int]()
        self._heard_at = 0.0  # when anything came from the process

    def hear(self) -> None:
        """Note that the process is not stuck."""
        self._heard_at = time.monotonic()

    def add(self, number: int) -> None:
        """Note that a reply was added."""
        self._begun[number] = time.monotonic()

    def cancel(self, number: int) -> None:
        """Note that it was cancelled."""
        if number in self._made or self._begun.pop(number, None) is not None:
            self._made.discard(number)
            self._cancelled.setdefault(number, time.monotonic())

    def note(self, output: Output) -> None:
        """Note an output of it."""
        number, came = output
        self._begun.pop(number, None)
        if isinstance(came, Exception) or came.finish_reason:
            self._made.discard(number)
            self._cancelled.pop(number, None)
        elif number not in self._cancelled:
            self._made.add(number)

    def overdue(self, begin: float, heed: float) -> int | None:
        """Return the number of a reply that has not begun within `begin` seconds, or 0 where a cancel was not heeded
        within `heed` seconds, counted from the last thing that came; else None.
        """
        if self._made:
            return None
        now = time.monotonic()

        def waited(since: float) -> float:
            return now - max(since, self._heard_at)

        if any(waited(since) > heed for since in self._cancelled.values()):
            return 0
        return next((number for number, since in self._begun.items() if waited(since) > begin), None)
