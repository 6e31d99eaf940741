"""A clock that only advances when a test tells it to."""

from __future__ import annotations


class Clock:
    """A replacement for `time.perf_counter`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self.now

    def advance(self, seconds: float) -> float:
        """Advance the clock by `seconds`, and return them."""
        self.now += seconds
        return seconds
