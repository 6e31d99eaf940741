"""Replies that another process makes, and what is kept of each here, so that they go on when that process was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from runtime.engine.engine import Ask
from runtime.engine.output import Output
from runtime.process.model_process import ModelProcess
from runtime.speculative.control.explain import Pass

NEAR = 32  # tokens of a reply that count as one place


@dataclass(slots=True, eq=False)
class LiveReply:
    """One reply so far."""

    number: int
    ask: Ask
    said: list[int] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    cancelled_at: float | None = None
    process: ModelProcess | None = None  # that makes it

    @property
    def place(self) -> tuple[int, int]:
        """Where it is, for whoever counts losses."""
        return self.number, len(self.said) // NEAR


class LiveReplies:
    """All that are being made. After a loss they are begun anew one after the other, each when the one before it has
    come further: so a reply that is the cause is found out, and no other is blamed for it.
    """

    def __init__(self) -> None:
        self._live: dict[int, LiveReply] = {}
        self._lock = threading.RLock()
        self._is_careful = False  # are they begun one after the other?
        self._tried: LiveReply | None = None  # the last one that was begun so
        self._place = 0, 0  # where it was then

    def add(self, reply: LiveReply) -> None:
        """A reply is to be made."""
        with self._lock:
            self._live[reply.number] = reply

    def remove(self, number: int) -> LiveReply | None:
        """It has ended, or nobody reads it. Returns it, if it was there."""
        with self._lock:
            return self._live.pop(number, None)

    def get(self, number: int) -> LiveReply | None:
        """Returns the reply of that number, if it is being made."""
        return self._live.get(number)

    def submit(self, process: ModelProcess) -> None:
        """Has the process make those that it does not make yet. Raises ProcessLostError."""
        with self._lock:
            for reply in list(self._live.values()):
                if reply.process is process or reply.cancelled_at is not None:
                    continue
                if self._is_careful and self._is_tried():
                    return
                process.add(reply.number, replace(reply.ask, said=tuple(reply.said), passes=tuple(reply.passes)))
                reply.process, self._tried, self._place = process, reply, reply.place
            self._is_careful = False

    def _is_tried(self) -> bool:
        """Has the last one that was begun come no further yet?"""
        return self._tried is not None and self._tried.number in self._live and self._tried.place == self._place

    def lost(self, process: ModelProcess) -> list[LiveReply]:
        """Returns those that a process made which was lost; they are begun anew with care."""
        with self._lock:
            found = [each for each in self._live.values() if each.process is process]
            self._is_careful, self._tried = len(found) > 1 or self._is_careful, None
        return found

    def all(self) -> list[LiveReply]:
        """Returns all that are being made."""
        return list(self._live.values())

    def unheeded(self, process: ModelProcess, patience: float) -> Iterator[LiveReply]:
        """Yields those that were cancelled and have not ended, where the process does not make them, or was told so
        many seconds ago.
        """
        now = time.monotonic()
        for each in list(self._live.values()):
            if each.cancelled_at is None:
                continue
            if each.process is not process or not process.is_alive or now - each.cancelled_at > patience:
                yield each

    def take(self, output: Output) -> bool:
        """Keeps what has come of a reply; is anybody to be told it?"""
        number, came = output
        with self._lock:
            reply = self._live.get(number)
            if reply is None:
                return False
            if isinstance(came, Exception) or came.finish_reason:
                del self._live[number]
            if not isinstance(came, Exception):
                reply.said += came.tokens
                if came.made is not None:
                    reply.passes.append(came.made)
        return True
