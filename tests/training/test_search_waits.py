"""The search for a draft model waits while it would disturb somebody, and is seen by others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.models import search_process, seeking
from app.models.search_process import NOT_NOW
from app.models.seeking import Search, opener
from runtime.core.children import Child
from runtime.core.pressure import MemoryPool, Reading
from runtime.engine import Options
from runtime.engine.machine import Device
from runtime.engine.paired import last_verdict
from tests.support.waiting import wait_for
from tests.training.test_seeking import DEMO, child, sleeping, target

__all__ = ["sleeping", "target"]


def test_it_waits_while_it_would_disturb_somebody_and_gives_way_to_who_comes_back(
    target: Path, sleeping: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "IDLE", 0.01)
    monkeypatch.setattr(seeking, "CHECK_SECONDS", 0.01)
    is_there, looks = [True], list[bool]()
    search = Search(target, str, disturbs=lambda: looks.append(True) or is_there[0])
    search.wait()
    wait_for(lambda: len(looks) > 2)
    assert not sleeping
    is_there[0] = False
    wait_for(lambda: sleeping)
    is_there[0] = True
    wait_for(lambda: sleeping[0].poll() is not None)
    is_there[0] = False
    wait_for(lambda: len(sleeping) == 2)
    search.stop()
    assert search._stopped.is_set()
    assert sleeping[1].poll() is not None


def test_a_busy_machine_is_left_alone(target: Path, sleeping: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one on which another Slipstream replies: both would be slower, and the search would measure that."""
    monkeypatch.setattr(seeking, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(seeking, "IDLE", 0.01)
    busy = [9.0]
    monkeypatch.setattr(seeking, "is_busy", lambda: busy.append(9.0) or len(busy) < 4)
    search = Search(target, str)
    search.wait()
    wait_for(lambda: sleeping)
    assert len(busy) == 4
    search.stop()


def test_a_search_that_was_stopped_waits_longer(target: Path, sleeping: list[Child]) -> None:
    search = Search(target, str)
    search.begin()
    search.stop()
    assert search._idle == 2 * seeking.IDLE
    search.stop()
    assert search._idle == 2 * seeking.IDLE


@pytest.mark.parametrize(("code", "n"), [(1, 1), (0, 1), (NOT_NOW, 2)])
def test_a_search_that_ended_by_itself_is_not_made_again(
    target: Path, monkeypatch: pytest.MonkeyPatch, code: int, n: int
) -> None:
    """Also where the model library ended it: it would end it again. But one that could not begin is."""
    begun = list[Child]()
    monkeypatch.setattr(seeking, "start", lambda *_: begun.append(child(f"import os; os._exit({code})")) or begun[-1])
    for _ in range(2):
        search = Search(target, str)
        search.begin()
        begun[-1].wait()
        search.stop()
    assert len(begun) == n
    assert ("its process ended with code 1" in last_verdict(target)) == (code == 1)


def test_a_model_that_is_opened_for_a_comparison_or_for_one_reply_searches_nothing(target: Path) -> None:
    pair = replace(DEMO, target=target, draft=None)
    for engine in (
        opener("auto", say=str)(pair, Options(threads=1), seeks=False),
        opener("auto", say=str, disturbs=None)(pair, Options(threads=1)),
    ):
        assert engine._search is None
        engine.close()


@pytest.mark.parametrize(
    ("gpus", "memory", "has_room"),
    [((), 1.6, True), ((), 1.4, False), ((1.6,), 0.1, True), ((1.6, 1.4), 9.0, False)],
)
def test_a_search_needs_room_for_another_copy(
    target: Path, gpus: tuple[float, ...], memory: float, has_room: bool
) -> None:
    def n_bytes(share: float) -> int:
        return int(share * target.stat().st_size)

    devices = [
        Device(kind, kind, n_bytes(share), 2**40) for kind, share in (("CPU", 0.1), *(("CUDA", s) for s in gpus))
    ]
    reading = Reading((MemoryPool("this machine", n_bytes(memory), 2**40),))
    assert search_process.has_room(target, devices, reading) is has_room


def test_others_see_for_which_model_a_search_runs(target: Path, sleeping: list[Child]) -> None:
    search = Search(target, str)
    search.begin()
    assert search_process.is_searched(target)
    assert not search_process.is_searched(target.with_name("small.gguf"))
    search.stop()
    assert not search_process.is_searched(target)
