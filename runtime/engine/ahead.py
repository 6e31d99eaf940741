"""Reading ahead: the beginning of a prompt that is expected is read while there is nothing else to do.

Any other request ends it at once. No text depends on it: the cache is as if the request had been there before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psutil

from runtime.core.cores import n_cores
from runtime.core.draft import Tokens, common_prefix
from runtime.core.errors import BusyError, SettingsError
from runtime.engine.engine import Ask
from runtime.engine.sequence import Sequence
from runtime.loading.neighbours import Neighbours

BUSY = 0.5  # share of the cores that other programs may keep busy
RECENT = 32  # prompts read ahead that the next request is compared with


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """A prompt [n] that was read ahead from position `start` on."""

    tokens: Tokens
    start: int


class Known(Protocol):
    """A request that is being prepared, waits or runs."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def ask(self) -> Ask:
        """What it asks for."""


class ReadAhead:
    """Decides whether prompts are read ahead, and counts the tokens: those read, and those that requests then had in
    the cache.
    """

    def __init__(self, is_on: bool, memory_level: Callable[[], str]) -> None:
        self._is_on, self._memory_level, self._neighbours = is_on, memory_level, Neighbours()
        self._recent = deque[Expected](maxlen=RECENT)
        self.n_read = self.n_used = 0

    def check(self) -> None:
        """Raise SettingsError if nothing is to be read ahead now. Takes a moment, in which others' load is measured."""
        if why := self._why_not():
            raise SettingsError(f"Nothing is read ahead: {why}.")

    def _why_not(self) -> str:
        if not self._is_on:
            return "it is off"
        if (level := self._memory_level()) != "OK":
            return f"memory is {level}"
        if is_on_battery():
            return "the machine runs on its battery"
        is_busy = self._neighbours.wait() > BUSY * n_cores()
        return "other programs keep the cores busy" if is_busy else ""

    def end(self, sequence: Sequence) -> None:
        """Record a sequence that has read ahead, to its end or until it was cancelled."""
        start, end = sequence.stats.cached_n, min(sequence.n_read, sequence.buffer.n_prompt - 1)
        if end > start:
            self._recent.append(Expected(sequence.tokens[:end].copy(), start))
            self.n_read += end - start

    def begin(self, sequence: Sequence) -> None:
        """Record a sequence that begins: how much of what it has in the cache was read ahead, unless it reads ahead."""
        if sequence.ask.is_ahead:
            return
        counted = 0  # end of what was counted: prompts may have been read ahead twice
        for each in sorted(self._recent, key=lambda each: each.start):
            n_shared = min(common_prefix(each.tokens, sequence.tokens), sequence.stats.cached_n)
            if n_shared > each.start:
                self.n_used += max(0, n_shared - max(each.start, counted))
                counted = max(counted, n_shared)
                self._recent.remove(each)


def make_way(new: Ask, known: Collection[Known], cancel: Callable[[int], object]) -> None:
    """Cancel those that read ahead, because there is a new request. Raises BusyError if that reads ahead of others."""
    others = answering(known)
    for each in known:
        if each not in others:
            cancel(each.number)
    if new.is_ahead and others:
        raise BusyError(len(others))


def answering(known: Iterable[Known]) -> list[Known]:
    """Return those that do more than read ahead."""
    return [each for each in known if not each.ask.is_ahead]


def is_on_battery() -> bool:
    """Return whether the machine has a battery and no other power; False where that is unknown."""
    with suppress(AttributeError, OSError, RuntimeError, psutil.Error):  # not every system tells
        if (battery := psutil.sensors_battery()) is not None:
            return battery.power_plugged is False
    return False
