"""Outputs are sent together: each message wakes two processes, which take the cores that the models compute on.

Knows replies by their numbers, and times; must not know pipes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from runtime.engine.output import Output

TELL_EVERY = 0.012  # seconds between two messages while steps are made quickly


class Outbox:
    """Outputs that were not sent yet. Only further tokens of a reply wait; its first, its end and its errors do not."""

    def __init__(self) -> None:
        self._outputs = list[Output]()
        self._sent_at = 0.0
        self._step_seconds = 0.0  # that a step takes, by the longest of late
        self._silent = set[int]()  # replies that have said nothing yet
        self.has_first = self._is_urgent = False  # is a reply's first token among the outputs? its beginning or end?

    def begin(self, number: int) -> None:
        """Note that a reply begins."""
        self._silent.add(number)

    def add(self, outputs: Iterable[Output], seconds: float) -> None:
        """Add the outputs of a step of so many seconds."""
        self._step_seconds = max(seconds, self._step_seconds / 2)
        for output in outputs:
            self._outputs.append(output)
            number, came = output
            if isinstance(came, Exception) or came.made is None:
                self._is_urgent = True
            if isinstance(came, Exception) or came.finish_reason:
                self._silent.discard(number)
            elif number in self._silent and came.tokens:
                self._silent.discard(number)
                self.has_first = True

    @property
    def is_due(self) -> bool:
        """Whether to send now: something is urgent, or the last message will be too long ago after one more step."""
        if self.has_first or self._is_urgent:
            return True
        is_late = time.perf_counter() + self._step_seconds - self._sent_at >= TELL_EVERY
        return bool(self._outputs) and is_late

    def take(self) -> list[Output]:
        """Return all outputs, which are sent now."""
        outputs, self._outputs = self._outputs, []
        self._sent_at, self.has_first, self._is_urgent = time.perf_counter(), False, False
        return outputs
