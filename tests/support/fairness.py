"""Watches the scheduler of an engine over the toy library: how long sequences wait that could decode, and who overtakes
whom in the line.
"""

from __future__ import annotations

import time

import pytest

from runtime.core import limits
from runtime.engine import order
from runtime.engine.scheduler import Scheduler
from runtime.engine.sequence import Batch, Sequence
from runtime.speculative import active_drafters
from tests.support.toy_library import PASS_SECONDS, ROW_SECONDS

TILE, PIECE, ROOM, LEAD, OVERTAKEN = 4, 12, 2e-3, 5e-3, 2e-2  # what stands for 32 and 128 tokens, and for a second
TURN = 2e-4  # for a tenth of a second
READ = max(ROOM, PASS_SECONDS + ROW_SECONDS * PIECE)  # seconds of a piece
DECODED, DRAFTED = 2 * PASS_SECONDS, PASS_SECONDS  # most seconds of a pass that reads nothing; of each draft for it


class Fairness:
    """Notes passes and admissions of every scheduler, and what was wrong with them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waited = dict[Sequence, float]()  # seconds of passes since each could decode
        self.most = dict[Sequence, float]()  # seconds that each may wait
        self.overtaken_at = dict[int, float]()
        self.wrongs = list[str]()
        self._admitted, self._record = Scheduler.admitted, Scheduler.record
        patch.setattr(order.AdapterTurns, "SECONDS", TURN)
        for module, name, value in (
            (active_drafters, "PIECE", PIECE),
            (order, "TILE", TILE),
            (order, "PIECE", PIECE),
            (order, "MAX_SECONDS", ROOM),
            (order, "MAX_LEAD", LEAD),
            (limits, "MAX_OVERTAKEN", OVERTAKEN),
        ):
            patch.setattr(module, name, value)

        def admitted(scheduler: Scheduler) -> list[Sequence]:
            return self.admitted(scheduler)

        def record(scheduler: Scheduler, batch: Batch, seconds: float) -> None:
            self.record(scheduler, batch, seconds)

        patch.setattr(Scheduler, "admitted", admitted)
        patch.setattr(Scheduler, "record", record)

    def admitted(self, scheduler: Scheduler) -> list[Sequence]:
        """Nobody is overtaken for longer than may be, for a place that it could have."""
        found, now = self._admitted(scheduler), time.monotonic()
        others = [each for each in scheduler.waiting if each not in found]
        oldest = min(others, key=lambda each: each.number, default=None)
        alike = [each for each in found if oldest and (scheduler.holds_one or each.ask.is_short == oldest.ask.is_short)]
        if oldest and any(each.number > oldest.number for each in alike):
            first = self.overtaken_at.setdefault(oldest.number, now)
            if now - first > OVERTAKEN:
                self.wrongs.append(f"{oldest.number} is overtaken after {now - first:.4f} s")
        return found

    def record(self, scheduler: Scheduler, batch: Batch, seconds: float) -> None:
        """Nobody who could decode waits for longer than may be; while one reads what the cache lost, all do."""
        ready = [each for each in scheduler.sequences if not each.is_reading and not scheduler.n_unread(each)]
        is_lost = scheduler._rereading is not None or scheduler._suspects or scheduler.holds_one
        waits = [each for each in ready if each not in {sequence for sequence, _ in batch.decoding} and not is_lost]
        self.waited = {each: self.waited.get(each, 0.0) + seconds for each in waits}
        n = len(scheduler.sequences)
        most = READ + LEAD * (scheduler._sharing is None) + n * (DECODED + n * DRAFTED)
        self.most = {each: max(most, self.most.get(each, 0.0)) for each in waits}  # some may have ended meanwhile
        self.wrongs += [f"{each.number} waits for {n:.4f} s" for each, n in self.waited.items() if n > self.most[each]]
        self._record(scheduler, batch, seconds)
