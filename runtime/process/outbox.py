"""When steps are told: each message wakes two processes, which take the cores that the models compute on.

Knows replies by their numbers, and times; must not know pipes.
"""

from __future__ import annotations

import time

from runtime.process.messages import Failed, Stepped

TELL_EVERY = 0.012  # seconds between two messages while steps are made quickly


class Outbox:
    """Steps that were made and not told yet. A reply's first token is to be told at once."""

    def __init__(self) -> None:
        self._steps = list[Stepped | Failed]()
        self._told_at = 0.0
        self._step_seconds = 0.0  # that a step takes, by the longest of late
        self._silent = set[int]()  # replies that have said nothing yet
        self.has_first = self._has_last = False  # is a reply's first token among the steps, or its last?

    def begin(self, number: int) -> None:
        """That reply begins."""
        self._silent.add(number)

    def end(self, number: int) -> None:
        """It has ended, which is told at once."""
        self._silent.discard(number)
        self._has_last = True

    def add(self, number: int, step: Stepped | Failed, seconds: float) -> None:
        """That reply's step, which took so long."""
        self._steps.append(step)
        self._step_seconds = max(seconds, self._step_seconds / 2)
        if number in self._silent and isinstance(step, Stepped) and step.chunk.tokens:
            self._silent.discard(number)
            self.has_first = True

    @property
    def is_due(self) -> bool:
        """Is it to be told now: as a reply has begun to speak or ended, or as the last message would be too long ago
        after one more step?
        """
        is_late = time.perf_counter() + self._step_seconds - self._told_at >= TELL_EVERY
        return self.has_first or self._has_last or is_late

    def take(self) -> list[Stepped | Failed]:
        """All of it, which is told now."""
        steps, self._steps = self._steps, []
        self._told_at, self.has_first, self._has_last = time.perf_counter(), False, False
        return steps
