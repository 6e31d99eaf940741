"""Steps of replies that have come from the process with the models, and how many more will come unasked.

Asking costs that process time between two passes, so whoever reads alone is sent some steps ahead.
"""

from __future__ import annotations

from collections import deque

from runtime.process.messages import Failed, Stepped

AHEAD = 16  # steps that are made for one ask where no other reply waits


def n_steps(n_waiting: int) -> int:
    """For one ask."""
    return 1 if n_waiting else AHEAD


class Flow:
    """What has come for the replies that somebody reads."""

    def __init__(self) -> None:
        self._came: dict[int, deque[Stepped | Failed]] = {}  # by the reply's number
        self._number, self._left = 0, 0  # the reply whose steps come unasked, and how many at least

    def begin(self, number: int) -> None:
        """Somebody reads that reply."""
        self._came[number] = deque()

    def end(self, number: int) -> None:
        """Nobody does any more."""
        self._came.pop(number, None)

    def note(self, step: Stepped | Failed) -> None:
        """It has come."""
        self._left -= step.number == self._number
        if step.number in self._came:
            self._came[step.number].append(step)

    def take(self, number: int) -> Stepped | Failed | None:
        """The reply's next one, if it has come."""
        came = self._came[number]
        return came.popleft() if came else None

    def is_of(self, number: int) -> bool:
        """Is that reply the one that is made?"""
        return number == self._number

    def is_due(self, number: int) -> bool:
        """Must be asked for more, so that they go on coming?"""
        return not self.is_of(number) or self._left <= 0

    def ask(self, number: int, n_waiting: int) -> None:
        """So many are asked for; whatever else was is interrupted."""
        # Asked for again when half of them have come: nobody waits for the asking.
        self._number, self._left = number, (n_steps(n_waiting) + 1) // 2

    def interrupt(self) -> None:
        """Something else was asked, so none come unasked."""
        self._number = 0
