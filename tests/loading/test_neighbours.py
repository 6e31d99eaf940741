"""What other processes take of the cores: by scripted counters, and by real ones beside a process that computes."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from bench.instruments.processes import busy_core
from runtime.loading import neighbours
from runtime.loading.neighbours import MAX_WAIT, WINDOW, Neighbours


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds of two cores, and of this process, that a test counts up."""
    now = {"time": 100.0, "user": 50.0, "nice": 0.0, "idle": 50.0, "own": 7.0}

    def cores(percpu: bool) -> list[SimpleNamespace]:
        half = {name: now[name] / 2 for name in ("user", "nice", "idle")}
        return [SimpleNamespace(**half), SimpleNamespace(**half)]

    monkeypatch.setattr(neighbours.psutil, "cpu_times", cores)
    monkeypatch.setattr(neighbours, "usable", lambda: [0, 1])
    monkeypatch.setattr(neighbours.time, "perf_counter", lambda: now["time"])
    monkeypatch.setattr(neighbours.time, "process_time", lambda: now["own"])
    return now


def pass_by(counters: dict[str, float], seconds: float, **more: float) -> None:
    """So much time passes, in which the counters go up."""
    counters["time"] += seconds
    for name, value in more.items():
        counters[name] += value


def test_what_others_take_is_what_is_not_ours_and_not_idle(counters: dict[str, float]) -> None:
    watched = Neighbours()
    pass_by(counters, 1.0, user=1.2, nice=0.5, own=0.9, idle=0.3)
    assert watched.busy_cores() == pytest.approx(0.8)
    pass_by(counters, 0.5, user=0.5, own=0.5, idle=0.5)
    assert watched.busy_cores() == pytest.approx(0.0)


def test_counters_that_move_in_steps_are_not_read_too_soon(counters: dict[str, float]) -> None:
    watched = Neighbours()
    pass_by(counters, WINDOW / 2, user=0.01)
    assert watched.busy_cores() is None
    pass_by(counters, WINDOW, user=0.03)
    assert watched.busy_cores() == pytest.approx(0.04 / (1.5 * WINDOW))


def test_what_others_do_while_nothing_is_computed_here_does_not_count(counters: dict[str, float]) -> None:
    """Such as a client that works between two short replies: no reply is long enough to tell by itself."""
    watched = Neighbours()
    for _ in range(3):
        pass_by(counters, WINDOW / 2, user=0.9 * WINDOW, own=0.9 * WINDOW)
        watched.pause()
        pass_by(counters, 10 * WINDOW, user=20 * WINDOW)
        watched.resume()
    assert watched.busy_cores() == pytest.approx(0.0)
    pass_by(counters, WINDOW, user=WINDOW)
    watched.resume()  # another reply begins beside the first, whose look that does not take away
    assert watched.busy_cores() == pytest.approx(1.0)
    pass_by(counters, WINDOW, user=WINDOW)
    watched.pause()
    pass_by(counters, 60.0, idle=120.0)
    watched.resume()
    assert watched.busy_cores() is None  # what was seen before is long ago


def test_what_was_long_ago_tells_nothing_of_now(counters: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Neighbours()
    pass_by(counters, 60.0, user=120.0, own=1.0)
    assert watched.busy_cores() is None
    pass_by(counters, 60.0, user=120.0, own=1.0)
    monkeypatch.setattr(neighbours.time, "sleep", lambda seconds: pass_by(counters, seconds, user=0.5 * seconds))
    assert watched.wait() == pytest.approx(0.5)


def test_where_nobody_may_read_the_counters_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(percpu: bool) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(neighbours.psutil, "cpu_times", refused)
    watched = Neighbours()
    assert watched.busy_cores() is None
    assert watched.wait() == 0.0


def test_parts_of_slipstream_are_no_neighbours(counters: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    def times_of(process: int) -> SimpleNamespace:
        if process == 1:
            raise psutil.NoSuchProcess(process)
        return SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=counters["family"], system=0.0))

    counters["family"] = 3.0
    monkeypatch.setattr(neighbours, "family", {1, 2})
    monkeypatch.setattr(neighbours.psutil, "Process", times_of)
    watched = Neighbours()
    pass_by(counters, 1.0, user=1.8, own=0.9, family=0.6)
    assert watched.busy_cores() == pytest.approx(0.3)


def test_passes_are_timed_when_parts_of_slipstream_have_loaded(
    counters: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    counters["family"], left = 3.0, [0.9, 0.5, 0.2, 0.9]  # of a core, in each look

    def look_away(seconds: float) -> None:
        pass_by(counters, seconds, family=left.pop(0) * seconds)

    monkeypatch.setattr(neighbours, "family_seconds", lambda: counters["family"])
    monkeypatch.setattr(neighbours.time, "sleep", look_away)
    watched = Neighbours()
    look_away(1.0)
    watched.wait_for_family()
    assert left == [0.9]
    left[:] = [0.9] * 1000
    look_away(1.0)
    watched.wait_for_family()  # not for ever
    assert 1000 - len(left) == pytest.approx(1 + MAX_WAIT / WINDOW, abs=2)


def test_a_process_that_computes_is_seen() -> None:
    with busy_core():
        watched = Neighbours()
        counted = sum(range(30_000_000))  # both compute for a while
        busy = watched.busy_cores()
    assert counted
    assert busy is not None
    assert busy > 0.2
