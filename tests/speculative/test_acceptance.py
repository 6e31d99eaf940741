"""Acceptance is learned from what was scored: by confidence, by kind of text, censored by the window."""

from __future__ import annotations

import pytest

from runtime.speculative.control.acceptance import Acceptance


def test_a_confidence_that_was_declined_is_still_scored() -> None:
    """Else a belief that keeps tokens from being tried could never be found wrong."""
    known = Acceptance()
    for _ in range(50):
        known.observe([0.85], 0, 1)
    low = known.chance(0.85)
    for _ in range(300):
        known.observe([0.85], 1, 1)
    assert low < 0.2
    assert known.chance(0.85) > 0.8


def test_each_kind_of_text_has_its_own_acceptance() -> None:
    known = Acceptance()
    for _ in range(20):
        for kind, right in (("prose", 0), ("code", 1)):
            known.set_kind(kind)
            for _ in range(5):
                known.observe([0.85], right, 1)
    known.set_kind("prose")
    prose = known.chance(0.85)
    known.set_kind("code")
    assert known.chance(0.85) > prose + 0.2


def test_what_a_kind_of_text_meant_is_known_at_the_next_start() -> None:
    known, next_start = Acceptance(), Acceptance()
    for _ in range(10):
        for kind, right in (("code", 1), ("prose", 0)):
            known.set_kind(kind)
            for _ in range(5):
                known.observe([0.85], right, 1)
    next_start.restore(known.state())
    next_start.set_kind("prose")
    prose = next_start.chance(0.85)
    next_start.set_kind("code")
    assert next_start.chance(0.85) > prose + 0.2


@pytest.mark.parametrize("kinds", [None, 1, [1], {"code": "?"}, {"code": float("nan")}])
def test_kinds_that_cannot_be_are_refused(kinds: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Acceptance().restore(Acceptance().state() | {"kinds": kinds})


def test_acceptance_is_censored_by_the_window() -> None:
    known = Acceptance()
    for _ in range(100):
        known.observe([0.95, 0.5], 0, 1)
    assert known.chance(0.95) < 0.1
    # Never tried: only the offset speaks of it
    assert known.chance(0.5) == pytest.approx(Acceptance().chance(0.5), abs=0.4)


def test_a_token_that_nothing_came_to_compare_with_says_nothing() -> None:
    """All of a window was accepted: what lies behind it, nobody knows."""
    known = Acceptance()
    for _ in range(100):
        known.observe([0.95, 0.95, 0.5], 2, 2)
    assert known.n_seen == 200
    assert known.chance(0.95) > 0.95
