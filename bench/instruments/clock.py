"""A clock that stands still but for what a test lets pass."""

from __future__ import annotations


class Clock:
    """Takes the place of `time.perf_counter`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the seconds that it shows."""
        return self.now

    def advance(self, seconds: float) -> float:
        """So many seconds pass; returns them."""
        self.now += seconds
        return seconds
