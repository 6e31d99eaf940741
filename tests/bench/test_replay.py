"""Recorded replies are generated again by a scripted target, with the same speed every time."""

from __future__ import annotations

from bench.replay import replayed, seconds_of

COPIED = list(range(10, 70))
FOUND = {
    "model": "made up",
    "seconds": {"1": 1.0, "2": 1.1, "8": 1.4, "32": 2.5},
    "after": 0.1,
    "exact_rows": 32,
    "texts": {"copy": ([*COPIED, 1], COPIED), "new": ([1, 2, 3], list(range(100, 160)))},
}


def test_copies_come_faster_and_new_text_no_slower() -> None:
    times = dict(replayed(FOUND, seed=0))
    assert times["made up: copy, no. 2"] > 3
    assert times["made up: new, no. 2"] > 0.97


def test_a_replay_repeats_exactly() -> None:
    assert seconds_of([FOUND]) == seconds_of([FOUND])
