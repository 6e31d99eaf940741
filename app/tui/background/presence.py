"""Whether somebody is at the chat, by the time of the last key, movement of the mouse, or reply to read.

Knows clocks and the number of cores; knows no widgets.
"""

from __future__ import annotations

import time

from runtime.loading.pass_timing import n_cores

FEW_CORES = 2  # up to which other work slows down typing and scrolling
AWAY = 180.0  # seconds without a sign of anybody, after which nobody reads or types


class Presence:
    """The signs of somebody at the chat. Read in other threads."""

    def __init__(self) -> None:
        self._seen = time.monotonic()

    def note(self) -> None:
        """Record a sign: a key, the mouse, or a reply that is read now."""
        self._seen = time.monotonic()

    @property
    def is_disturbed_by_work(self) -> bool:
        """Whether work in the background would disturb somebody, which it does only where cores are few."""
        return n_cores() <= FEW_CORES and time.monotonic() - self._seen < AWAY
