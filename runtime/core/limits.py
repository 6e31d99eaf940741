"""Limits of running and waiting sequences, and the order in which they run. Knows nothing else of sequences."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from runtime.core.errors import BusyError


class Limited(Protocol):
    """What limits know of a request."""

    @property
    def is_short(self) -> bool:
        """Whether it has a place of its own, and goes before long ones."""

    @property
    def is_admitted(self) -> bool:
        """Whether it belongs to work that ran before: then it is not refused, and goes before what is new."""


class Queued(Protocol):
    """What waits for its turn, or has it."""

    @property
    def number(self) -> int:
        """Its place in the order of arrival."""

    @property
    def ask(self) -> Limited:
        """Its request."""


Waiting = TypeVar("Waiting", bound=Queued)

MAX_OVERTAKEN = 1.0  # seconds for which what came later may go before what waits longest


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_running` long sequences and a short one run, or a single one where the cache holds one. None: no limit."""

    max_running: int | None = None
    max_waiting: int | None = None  # sequences; a further one is refused

    def n_free(self, is_short: bool, running: Sequence[Queued], holds_one: bool) -> float:
        """Return how many sequences of this kind may begin now."""
        if self.max_running is None:
            return math.inf
        if holds_one:
            return 0 if running else 1
        return (1 if is_short else self.max_running) - sum(each.ask.is_short == is_short for each in running)

    def admitted(
        self, waiting: Sequence[Waiting], running: Sequence[Queued], holds_one: bool, overdue: Queued | None = None
    ) -> list[Waiting]:
        """Return those that may begin now: first the one that is `overdue`, then what ran before, then short ones, then
        by arrival.
        """
        found = list[Waiting]()
        order = sorted(
            waiting,
            key=lambda each: (each is not overdue, not each.ask.is_admitted, not each.ask.is_short, each.number),
        )
        for each in order:
            if self.n_free(each.ask.is_short, [*running, *found], holds_one) > 0:
                found.append(each)
        return found

    def check(self, new: Limited, waiting: Sequence[Queued], running: Sequence[Queued], holds_one: bool) -> None:
        """Check that a new sequence may begin or wait. Raises BusyError."""
        if new.is_admitted or self.max_waiting is None:
            return
        begin = self.admitted(waiting, running, holds_one)
        n_waiting = len(waiting) - len(begin)
        if n_waiting >= self.max_waiting and self.n_free(new.is_short, [*running, *begin], holds_one) <= 0:
            raise BusyError(n_waiting)


UNLIMITED = Limits()


class Admission:
    """Admits what waits, within limits. What has waited longest is overdue, and goes first, once others that came later
    have had its place for a while.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The number of what waits longest, and when something that came later first had the place of it
        self._overtaken: tuple[int, float] | None = None

    def admit(self, waiting: Sequence[Waiting], running: Sequence[Queued], holds_one: bool) -> list[Waiting]:
        """Return those of the waiting that begin now."""
        if not waiting:
            return []
        oldest, now = min(waiting, key=lambda each: each.number), time.monotonic()
        if self._overtaken is not None and self._overtaken[0] != oldest.number:
            self._overtaken = None
        is_overdue = self._overtaken is not None and now - self._overtaken[1] > MAX_OVERTAKEN
        found = self._limits.admitted(waiting, running, holds_one, oldest if is_overdue else None)
        alike = [each for each in found if holds_one or each.ask.is_short == oldest.ask.is_short]
        if self._overtaken is None and oldest not in found and any(each.number > oldest.number for each in alike):
            self._overtaken = oldest.number, now
        return found
