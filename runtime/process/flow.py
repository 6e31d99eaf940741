"""Steps of replies that have come from the process with the models, and when more are to be asked for.

Asking costs that process time between two passes, so for one ask some steps are made ahead: of the reply that is asked
for, and of all others that were begun where replies share passes.
"""

from __future__ import annotations

from collections import deque

from runtime.process.messages import Failed, Stepped

AHEAD = 16  # rounds of steps that are made for one ask


class Flow:
    """What has come for the replies that somebody reads."""

    def __init__(self) -> None:
        self._came: dict[int, deque[Stepped | Failed]] = {}  # by the reply's number
        self._n_taken = 0  # steps that were read
        self._gave_way = dict[int, int]()  # how many that were when a reply last let others read theirs
        self._number = 0  # the reply that was asked for last
        self._n_asked = 0  # asks after which more may come
        self._n_since = 0  # steps of that reply since then

    def begin(self, number: int) -> None:
        """Somebody reads that reply."""
        self._came[number] = deque()

    def end(self, number: int) -> None:
        """Nobody does any more."""
        self._came.pop(number, None)
        self._gave_way.pop(number, None)

    def note(self, step: Stepped | Failed) -> None:
        """It has come."""
        self._n_since += step.number == self._number
        if step.number in self._came:
            self._came[step.number].append(step)

    def note_pause(self) -> None:
        """All has come that was asked for once."""
        self._n_asked -= 1

    @property
    def goes_on(self) -> bool:
        """Are steps being made, for which whatever else is asked has to wait?"""
        return self._n_asked > 0

    def take(self, number: int) -> Stepped | Failed | None:
        """The reply's next one, if it has come."""
        came = self._came[number]
        self._n_taken += bool(came)
        return came.popleft() if came else None

    def gives_way(self, number: int) -> bool:
        """Should that reply, for which nothing has come, let others read what has? Not twice before anybody did."""
        if not any(self._came.values()) or self._gave_way.get(number) == self._n_taken:
            return False
        self._gave_way[number] = self._n_taken
        return True

    def is_of(self, number: int) -> bool:
        """Is that reply the one that was asked for?"""
        return number == self._number

    def is_due(self, number: int) -> bool:
        """Must be asked for more, so that steps of that reply go on coming? Of one that was asked for already when half
        of them have come: then nobody waits for the asking.
        """
        return not self._n_asked or (self.is_of(number) and self._n_asked == 1 and self._n_since >= AHEAD // 2)

    def ask(self, number: int) -> None:
        """They are asked for."""
        self._number, self._n_since = number, 0
        self._n_asked += 1
