"""How long a sequence waits for others, whatever comes: laws, in seconds of passes."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instruments.toy import Clock
from runtime.backends.held import TILE
from runtime.core.limits import UNLIMITED, Admission, Limits
from runtime.engine.engine import Ask
from runtime.engine.order import PIECE
from runtime.engine.sequence import Batch, Sequence
from tests.support.planning import FREE, GREEDY, Setting

SECOND = 1.0
ONE_PASS = 0.05  # seconds of a pass that reads nothing
KINDS: dict[str, dict[str, Any]] = {
    "mixed": {},
    "mixed, with little room": {"n_cells": 2000},
    "unmixed": {"exact_rows": 4},
    "unmixed, each alone": {"exact_rows": 1},
    "unmixed, with little room": {"exact_rows": 4, "n_cells": 2000},
    "in turns": {"shares": False},
    "in turns, unmixed": {"shares": False, "exact_rows": 4},
    "one at a time": {"slots": 1},
}


@dataclass(frozen=True)
class Arrival:
    """A request that comes after so many passes."""

    after: int
    n: int  # tokens of its prompt, of which so many are cached
    n_cached: int
    n_said: int  # tokens of its reply, after which it ends
    is_predictable: bool
    is_short: bool


arrivals = st.builds(
    Arrival, st.integers(0, 12), st.integers(2, 1900), st.integers(0, 1900), st.integers(1, 40), st.booleans(),
    st.booleans(),
)  # fmt: skip


class Waits:
    """Makes passes, and notes for how long each sequence has waited that could decode."""

    def __init__(self, kind: str, row_seconds: float, switch_seconds: float) -> None:
        self.setting = Setting(**{"n_cells": 10**6} | KINDS[kind])
        self.setting.pass_seconds, self.setting.row_seconds = ONE_PASS, row_seconds
        self.setting.scheduler._prompts._row_seconds = row_seconds
        self.setting.decoder.drafting.switch_seconds = switch_seconds
        self.waited, self.left = dict[Sequence, float](), dict[Sequence, int]()
        has_fixed_pieces = not self.setting.exactness.is_exact
        piece = ONE_PASS + row_seconds * (PIECE if has_fixed_pieces else TILE)
        # In turns, short sequences may lead for the two seconds of a piece that is read alone, and then all others have
        # their turns within another one
        self.most = max(SECOND, piece) + 3 * SECOND * ("in turns" in kind)

    def add(self, number: int, new: Arrival) -> None:
        sampling = GREEDY if new.is_predictable else FREE
        sequence = self.setting.add(number, new.n, min(new.n_cached, new.n - 1), sampling, is_short=new.is_short)
        self.left[sequence] = new.n_said

    def could_decode(self, sequence: Sequence) -> bool:
        return self.setting.target.n_cached(sequence.tokens) == sequence.buffer.n - 1

    def step(self) -> None:
        """A pass is made, and nobody has waited for longer than may be."""
        scheduler = self.setting.scheduler
        ready = [each for each in scheduler.sequences if self.could_decode(each)]
        batch = scheduler.plan()
        seconds = self.setting.seconds(batch)
        self.waited = {each: self.waited.get(each, 0.0) + seconds for each in ready}
        self.setting.make(batch)
        self.end_some(batch)
        others = ONE_PASS * len(scheduler.sequences)
        for each, waited in self.waited.items():
            assert waited <= self.most + 2 * others, f"{each.number} waited for {waited:.2f} s"

    def end_some(self, batch: Batch) -> None:
        for each, _ in batch.decoding:
            self.waited.pop(each, None)
            self.left[each] -= 1
            if not self.left[each]:
                self.setting.scheduler.remove(each)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    row_seconds=st.sampled_from([0.0005, 0.006, 0.03]),
    switch_seconds=st.sampled_from([0.0, 0.02, 0.3]),
    coming=st.lists(arrivals, min_size=2, max_size=12),
)
def test_nobody_who_could_decode_waits_for_longer_than_a_second_or_a_piece(
    kind: str, row_seconds: float, switch_seconds: float, coming: list[Arrival]
) -> None:
    """For its first token or its next one, whatever prompts are read; and all come to an end."""
    waits = Waits(kind, row_seconds, switch_seconds)
    for number, new in enumerate(coming, start=1):
        for _ in range(new.after):
            if waits.setting.scheduler.sequences:
                waits.step()
        waits.add(number, new)
    for _ in range(3000):
        if not waits.setting.scheduler.sequences:
            return
        waits.step()
    raise AssertionError("some never end")


def test_the_first_comer_is_read_for_a_quarter_of_the_time() -> None:
    for exact_rows in (4, sys.maxsize):
        setting, parts = Setting(exact_rows=exact_rows, n_cells=10**6), [(0, 0.0)]
        setting.row_seconds = 0.008
        setting.add(1, 1900)
        for number in range(2, 200):
            setting.add(number, 300, sampling=FREE, max_tokens=0)
        while len(parts) < 50:
            batch = setting.scheduler.plan()
            own = sum(n for each, n in batch.n_rows.items() if each.number == 1)
            parts.append((own, setting.seconds(batch)))
            setting.make(batch)
            for each in [each for each in setting.scheduler.sequences if not each.is_reading]:
                setting.scheduler.remove(each)
        first = next(n for n, (own, _) in enumerate(parts) if own)
        assert sum(seconds for _, seconds in parts[:first]) > 4.0  # for which others may be read first
        share = sum(own * setting.row_seconds for own, _ in parts) / sum(seconds for _, seconds in parts)
        assert 0.19 < share < 0.26


MOST = {"long": 16.0, "short": 2.0}  # seconds that a reply takes
requests = st.tuples(
    st.floats(0.0, 3.0),  # seconds since the one before came
    st.booleans(),  # short
    st.booleans(),  # of work that ran before
    st.floats(0.1, 1.0),  # part of the most seconds of its kind that it takes
)


@dataclass(eq=False)
class Request:
    """One that waits or runs."""

    number: int
    ask: Ask
    comes_at: float
    seconds: float
    ends_at: float = 0.0
    overtaken_at: float = math.inf


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(limits=st.builds(Limits, st.integers(1, 3)), holds_one=st.booleans(), coming=st.lists(requests, max_size=30))
def test_nobody_waits_to_begin_while_others_go_before_it_for_longer_than_a_second(
    limits: Limits, holds_one: bool, coming: list[tuple[float, bool, bool, float]]
) -> None:
    """A second after it was overtaken first, nothing that came later has a place that what waits longest could have."""
    now, waiting, running, clock = 0.0, list[Request](), list[Request](), Clock()
    for number, (wait, is_short, is_admitted, part) in enumerate(coming):
        now += wait
        ask = Ask("", FREE, is_short=is_short, is_admitted=is_admitted)
        waiting.append(Request(number, ask, now, part * MOST["short" if is_short else "long"]))
    later, admission = waiting, Admission(limits)
    waiting = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", clock)
        while later or waiting:
            events = [*(each.comes_at for each in later[:1]), *(each.ends_at for each in running)]
            clock.now = min(events)
            running = [each for each in running if each.ends_at > clock.now]
            waiting += [each for each in later if each.comes_at <= clock.now]
            later = [each for each in later if each.comes_at > clock.now]
            for new in (found := admission.admit(waiting, running, holds_one)):
                new.ends_at = clock.now + new.seconds
            for oldest in [min(waiting, key=lambda each: each.number)] if waiting else []:
                alike = [each for each in found if holds_one or each.ask.is_short == oldest.ask.is_short]
                if oldest not in found and any(each.number > oldest.number for each in alike):
                    assert clock.now - oldest.overtaken_at <= SECOND
                    oldest.overtaken_at = min(oldest.overtaken_at, clock.now)
            running += found
            waiting = [each for each in waiting if each not in found]


def test_a_chat_has_its_turn_among_completions_that_come_without_end() -> None:
    """Where one conversation is held and one reply made at a time, and everywhere else."""
    for one, limits in ((True, Limits(1)), (False, Limits(1)), (True, UNLIMITED), (True, Limits(3))):
        setting, clock = Setting(limits=limits, slots=1 if one else 9), Clock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", clock)
            for number in (1, 2, 3):
                setting.add(number, 20, is_short=True)
            chat = setting.add(4, 50)
            for number in range(5, 40):
                for _ in range(20):  # each completion takes 0.2 s
                    setting.make(setting.scheduler.plan())
                    clock.advance(0.01)
                for each in [
                    each for each in setting.scheduler.sequences if each is not chat and each.buffer.n_reply > 9
                ]:
                    setting.scheduler.remove(each)
                setting.add(number, 20, is_short=True)
                if chat.buffer.n_reply:
                    break
        assert chat.buffer.n_reply
        assert clock.now < 3
