"""When to do what takes long, so that no key waits for it.

Knows when keys came; knows no widgets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

TYPING = 0.3  # seconds after a key within which another one is to be expected


class TypingGap:
    """The time right after a key is seen, which is when the next one is farthest away: what takes long is done then.
    Where nobody types it is done at once.
    """

    def __init__(self) -> None:
        self._typed = float("-inf")
        self._waiting: Callable[[], object] | None = None

    def note_key(self) -> None:
        """A key was pressed."""
        self._typed = time.monotonic()

    def use(self) -> None:
        """The key is on screen, or none came: does what has waited."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()

    def wait(self, work: Callable[[], object], set_timer: Callable[[float, Callable[[], None]], object]) -> None:
        """Has something done in the next gap. `set_timer` has a function called after so many seconds."""
        self._waiting = work
        if time.monotonic() - self._typed > TYPING:
            self.use()
        else:
            set_timer(TYPING, self.use)
