"""Stored prompts are read while other replies go on; whoever waits for one begins when it is there, and may leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.backends.stored.prefix_store import PrefixStore
from runtime.backends.stored.saved_states import SavedState
from runtime.core.draft import Adapters, Tokens
from runtime.core.errors import SettingsError
from runtime.core.limits import Limits
from runtime.engine.core import EngineCore
from runtime.engine.prefixes import Prefixes
from runtime.engine.stored_states import StoredStates
from runtime.sampling.settings import Sampling
from tests.support.alone import Request, alone
from tests.support.read_reply import Reply
from tests.support.scheduling import Scheduling, scheduling
from tests.support.toy_engine import Setup, ToyEngine
from tests.support.waiting import PATIENCE, wait_for

GREEDY = Sampling(temperature=0.0, seed=0)
STORED = 1, 2, 1, 1, 3, 3, 5, 1, 2, 4, *(3, 5, 2) * 10  # a prompt whose state is on the disk
RUNNING, LATER = Request((1, 2, 4, 3), GREEDY, 60), Request((*STORED, 2), GREEDY, 20)


class SlowDisk:
    """A store with one state, whose bytes come when `go_on` is set."""

    bytes_per_second, is_writable = 1e9, False

    def __init__(self) -> None:
        self.go_on, self.n_begun = Event(), 0
        self.state: SavedState | None = None
        self.error: Exception | None = None

    def find(self, context: Tokens, is_pure: bool = False, adapters: Adapters = ()) -> Any:
        if tuple(context[: len(STORED)]) != STORED:
            return None
        return SimpleNamespace(saved=self.state, n_bytes=1, token_seconds=1.0)

    def read(self, entry: Any) -> SavedState | None:
        self.n_begun += 1
        assert self.go_on.wait(PATIENCE)
        if self.error:
            raise self.error
        return self.state


@contextmanager
def with_disk(limits: Limits | None = None) -> Iterator[tuple[Scheduling, EngineCore, SlowDisk]]:
    """An engine with such a store."""
    setup = Setup("shared", limits=limits) if limits else Setup("shared")
    with scheduling(setup, n_ahead=None) as made:
        assert isinstance(made.engine, ToyEngine)
        core, disk, backend = made.engine.core, SlowDisk(), made.engine.backends[0]
        to_end(made, made.add(Request(STORED, GREEDY, 0)))
        disk.state = backend.conversations()[0].copy(0)
        assert disk.state is not None
        backend._clear()
        core.prefixes = Prefixes(backend, StoredStates(disk, lambda: not core.is_idle), lambda _: True)  # type: ignore[arg-type]
        try:
            yield made, core, disk
        finally:
            disk.go_on.set()


def to_end(made: Scheduling, *replies: Reply) -> None:
    for each in replies:
        wait_for(lambda each=each: each.is_over, lambda each=each: each.is_over or made.read(each))  # type: ignore[misc]


def cached(made: Scheduling, reply: Reply) -> int:
    """How many tokens of its prompt were there when it began."""
    while not reply.came:
        made._step()
    (first,) = reply.came
    return first.stats.cached_n  # type: ignore[union-attr]


def test_others_go_on_while_a_state_is_read_and_its_sequence_begins_with_it() -> None:
    with with_disk() as (made, core, disk):
        first, later = made.add(RUNNING), made.add(LATER)
        to_end(made, first)
        assert disk.n_begun == 1
        assert not later.came
        assert not core.is_idle
        disk.go_on.set()
        assert cached(made, later) == len(STORED) - 1
        to_end(made, later)
        assert [first.said, later.said] == [alone(RUNNING), alone(LATER)]


def test_who_waits_for_a_state_may_leave_and_be_cancelled() -> None:
    with with_disk() as (made, core, disk):
        first, gone, cancelled = made.add(RUNNING), made.add(LATER), made.add(LATER)
        while not first.said.tokens:
            made.read(first)
        made.leave(gone)
        cancelled.is_cancelled = True
        to_end(made, cancelled)
        assert (cancelled.said.tokens, cancelled.said.reason) == ([], "cancelled")
        to_end(made, first)
        assert core.is_idle
        assert not disk.go_on.is_set()


def test_a_place_is_taken_while_a_state_is_read() -> None:
    with with_disk(Limits(1, 5)) as (made, core, disk):
        later, first = made.add(LATER), made.add(RUNNING)
        for _ in range(3):
            made._step()
        assert (len(core.scheduler.fetching), len(core.scheduler.waiting), core.n_running) == (1, 2, 0)
        disk.go_on.set()
        to_end(made, later, first)
        assert [later.said, first.said] == [alone(LATER), alone(RUNNING)]


def test_a_state_that_cannot_be_read_costs_only_reading_its_prompt(caplog: pytest.LogCaptureFixture) -> None:
    with with_disk() as (made, _core, disk):
        disk.error = MemoryError("no room")
        disk.go_on.set()
        later = made.add(LATER)
        assert cached(made, later) == 0
        to_end(made, later)
        assert later.said == alone(LATER)
    assert "could not be read" in caplog.text


def test_where_no_thread_can_be_had_the_prompt_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: object) -> Any:
        raise RuntimeError("can't start new thread")

    with with_disk() as (made, _core, _disk):
        monkeypatch.setattr("runtime.engine.prefixes.threading", SimpleNamespace(Thread=refuse))
        later = made.add(LATER)
        to_end(made, later)
        assert later.said == alone(LATER)


def test_no_slot_is_saved_or_erased_while_a_state_is_read() -> None:
    with with_disk() as (made, _core, _disk):
        made.add(LATER)
        made._step()
        assert isinstance(made.engine, ToyEngine)
        with pytest.raises(SettingsError, match="is being generated"):
            made.engine.prompts.handle("erase", 0, "")


def test_each_written_part_is_a_sign_of_life_when_it_closes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.backends.stored.prefix_store.CHUNK", 8)
    with with_disk() as (made, core, disk):
        disk.go_on.set()
        to_end(made, made.add(LATER))
        backend, signs = made._toy.backends[0], list[str]()
        store = PrefixStore("toy", 10**9, tmp_path / "prompts")
        states = StoredStates(store, lambda: False)
        core.prefixes, states.token_seconds = Prefixes(backend, states, lambda _: True), 10.0
        core.prefixes.close(lambda: signs.append("alive"))
        (state,) = store.place.glob("*.state")
        assert len(signs) == -(-state.stat().st_size // 8) > 1
