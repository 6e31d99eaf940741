"""A machine whose memory, pages and clock do as they are told."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from runtime.core.pressure import MIB, Level, MemoryPool, PressureMonitor, Reading, Thresholds

TOTAL = 16_000 * MIB
OK, TIGHT, CRITICAL = Level.OK, Level.TIGHT, Level.CRITICAL
FREE = {OK: 9000, TIGHT: 1000, CRITICAL: 300}  # MiB


def reading(free: int, **more: float) -> Reading:
    """`free` MiB of 16,000."""
    return Reading((MemoryPool("this machine", free * MIB, TOTAL),), **more)  # type: ignore[arg-type]


class Machine:
    """A reader and a clock that do as they are told."""

    def __init__(self, thresholds: Thresholds | None = None, reserve: int = 0) -> None:
        self.now, self.free, self.n_read = 0.0, FREE[OK], 0
        self.watch = PressureMonitor(self.read, thresholds or Thresholds(), lambda: self.now, reserve)

    def read(self) -> Reading:
        self.n_read += 1
        return reading(self.free)

    def after(self, seconds: float, free: int) -> Level:
        """Looks after so many seconds of that much memory."""
        self.now, self.free = self.now + seconds, free
        return self.watch.update()

    def calm(self, seconds: int = 21) -> Level:
        """All is free for so many seconds."""
        return [self.after(1, FREE[OK]) for _ in range(seconds + 1)][-1]


# Bytes of a page: most machines', Apple's, those of some Linux on Arm
PAGES = pytest.mark.parametrize("page", [4 << 10, 16 << 10, 64 << 10])


def play_pages(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Files are mapped from multiples of `size` bytes alone, as where a page has that many.

    Skips where pages are larger.
    """
    if size < mmap.PAGESIZE:
        pytest.skip("pages are larger here")

    class Mapped(mmap.mmap):
        def __new__(cls, *args: Any, offset: int = 0, **more: Any) -> Mapped:
            if offset % size:
                raise OSError(22, "Invalid argument")
            return super().__new__(cls, *args, offset=offset, **more)

    monkeypatch.setattr(mmap, "mmap", Mapped)
    for name in ("PAGESIZE", "ALLOCATIONGRANULARITY"):
        monkeypatch.setattr(mmap, name, size)
