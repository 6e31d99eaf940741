"""Schedules slow work so that no key waits for it.

Knows the times of key presses; knows no widgets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TYPING = 0.3  # seconds after a key within which another one is likely


class TypingGap:
    """Runs slow work right after a key is drawn, when the next key is farthest away, or immediately without typing."""

    def __init__(self) -> None:
        self._typed = float("-inf")
        self._waiting: Callable[[], object] | None = None

    def note_key(self) -> None:
        """Record the time of a key press."""
        self._typed = time.monotonic()

    def use(self) -> None:
        """Run the waiting work: the key is on screen, or none was pressed."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def wait(self, work: Callable[[], object], set_timer: Callable[[float, Callable[[], None]], object]) -> None:
        """Run `work` in the next gap. `set_timer` calls a function after a number of seconds."""
        self._waiting = work
        if time.monotonic() - self._typed > TYPING:
            self.use()
        else:
            set_timer(TYPING, self.use)
