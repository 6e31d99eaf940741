"""Memory's level under an injected reader and clock: when it rises, when it falls, and who has a say."""

from __future__ import annotations

import math

import pytest

from runtime.core.pressure import MIB, Level, MemoryPool, Reading, Thresholds, judge
from tests.support.memory import CRITICAL, FREE, OK, TIGHT, Machine, reading


@pytest.mark.parametrize(("before", "after"), [(OK, TIGHT), (OK, CRITICAL), (TIGHT, CRITICAL)])
def test_the_level_rises_at_the_first_look(before: Level, after: Level) -> None:
    machine = Machine()
    assert machine.after(1, FREE[before]) == before
    assert machine.after(1, FREE[after]) == after
    assert f"{FREE[after]:,} MiB" in machine.watch.found.text


@pytest.mark.parametrize(("before", "after"), [(TIGHT, OK), (CRITICAL, TIGHT), (CRITICAL, OK)])
def test_the_level_falls_when_more_than_enough_was_free_for_a_while(before: Level, after: Level) -> None:
    machine = Machine()
    machine.after(1, FREE[before])
    levels = [machine.after(1, FREE[after]) for _ in range(22)]
    assert levels[:20] == [before] * 20
    assert levels[-1] == after


def test_it_does_not_fall_while_only_just_enough_is_free_or_not_for_long() -> None:
    machine = Machine()
    machine.after(1, FREE[TIGHT])
    assert {machine.after(1, 1400) for _ in range(60)} == {TIGHT}  # 1280 are wanted, 1600 to come back
    assert {machine.after(1, FREE[OK] if n % 15 else FREE[TIGHT]) for n in range(60)} == {TIGHT}


def test_what_would_be_taken_again_must_be_free_as_well() -> None:
    machine = Machine(reserve=2000 * MIB)
    machine.after(1, FREE[TIGHT])
    assert {machine.after(1, 3500) for _ in range(60)} == {TIGHT}
    assert [machine.after(1, 3700) for _ in range(60)][-1] == OK


def test_a_calm_that_was_deceptive_must_last_longer_the_next_time() -> None:
    machine, taken = Machine(), []
    for _ in range(3):
        machine.after(1, FREE[TIGHT])
        began = machine.now
        while machine.calm(0) != OK:
            pass
        taken.append(machine.now - began)
    assert taken == [21, 41, 81]
    machine.after(5000, FREE[OK])
    machine.after(1, FREE[TIGHT])
    assert machine.calm() == OK


def test_it_is_read_at_most_every_quarter_second_and_for_a_thousandth_of_the_time() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.now += 0.01
        machine.watch.update()
    assert machine.n_read <= 41
    slow = Machine()

    def read() -> Reading:
        slow.now, slow.n_read = slow.now + 0.002, slow.n_read + 1
        return reading(FREE[OK])

    slow.watch.source = read
    while slow.now < 100:
        slow.now += 0.01
        slow.watch.update()
    assert 30 < slow.n_read <= 51


def test_a_reader_that_fails_leaves_the_level_and_says_so() -> None:
    machine = Machine()
    machine.after(1, FREE[TIGHT])

    def fail() -> Reading:
        raise RuntimeError("no such counter")

    working, machine.watch.source = machine.watch.source, fail
    assert machine.calm() == TIGHT
    assert "no such counter" in machine.watch.problem
    machine.watch.source = working
    assert machine.calm() == OK
    assert machine.watch.problem == ""


@pytest.mark.parametrize(("free", "total"), [(0, 0), (-1, 10), (11 * MIB, 10 * MIB), (5, -5)])
def test_a_place_that_cannot_be_is_not_believed(free: int, total: int) -> None:
    assert (
        judge(Reading((MemoryPool("GPU", free, total, True), MemoryPool("GPU", free, total))), Thresholds()).level == OK
    )


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (Reading(), OK),
        (Reading(stalled_some=0.05, stalled_full=0.05), OK),
        (Reading(stalled_some=0.2, stalled_full=0.1), TIGHT),
        (Reading(stalled_some=0.5, stalled_full=0.4), CRITICAL),
        (Reading(stalled_some=7.0, stalled_full=-1.0), OK),
        (Reading(stalled_some=math.nan), OK),
        (Reading(os_level=TIGHT), TIGHT),
        (Reading((MemoryPool("GPU", 200 * MIB, 8000 * MIB, True),)), TIGHT),
        (Reading((MemoryPool("GPU", 50 * MIB, 8000 * MIB, True),)), CRITICAL),
        (Reading((MemoryPool("GPU", 600 * MIB, 8000 * MIB, True),)), OK),
    ],
)
def test_stalls_the_system_and_devices_have_a_say(found: Reading, level: Level) -> None:
    assert judge(found, Thresholds()).level == level
