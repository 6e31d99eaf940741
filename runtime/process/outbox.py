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
        self._is_urgent = False  # is a first token among the steps, or a reply's last?

    def begin(self, number: int) -> None:
        """That reply begins."""
        self._silent.add(number)

    def end(self, number: int) -> None:
        """It has ended, which is told at once."""
        self._silent.discard(number)
        self._is_urgent = True

    def add(self, number: int, step: Stepped | Failed, seconds: float) -> None:
        """That reply's step, which took so long."""
        self._steps.append(step)
        self._step_seconds = max(seconds, self._step_seconds / 2)
        if number in self._silent and isinstance(step, Stepped) and step.chunk.tokens:
            self._silent.discard(number)
            self._is_urgent = True

    @property
    def is_due(self) -> bool:
        """Is it to be told now: as a reply has begun to speak or ended, or as the last message would be too long ago
        after one more step?
        """
        return self._is_urgent or time.perf_counter() + self._step_seconds - self._told_at >= TELL_EVERY

    def take(self) -> list[Stepped | Failed]:
        """All of it, which is told now."""
        steps, self._steps = self._steps, []
        self._told_at, self._is_urgent = time.perf_counter(), False
        return steps
