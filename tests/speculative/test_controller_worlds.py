"""The controller where costs jump, texts change and processes end: simulated, by scripted times; no clock, no model."""

from __future__ import annotations

from functools import cache

import pytest

from bench.instruments.traces import LAWS, World, adaptive, controller_for, made_up
from bench.instruments.worlds import COSTS, Together, changed, together, worlds

WORLDS = {world.name: world for world in worlds(n=1200, seed=1)}
TOGETHER = dict(together(n=400, seed=1))


def times_plain(world: World) -> float:
    return sum(trace.plain_seconds for trace in world.traces) / world.lived()


@cache
def times_plain_together(case: str) -> float:
    return TOGETHER[case]()


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_never_much_slower_than_plain_decode(name: str) -> None:
    is_hard = any(word in name for word in ("short replies", "stall", "times their parts"))
    assert times_plain(WORLDS[name]) > (0.935 if is_hard else 0.98)


@pytest.mark.parametrize("where", ["1B, 2 cores", "demo, 2 cores", "GPU"])
def test_short_replies_gain_from_what_the_ones_before_have_learned(where: str) -> None:
    good, bad = (WORLDS[f"{where}: short replies, {law}"] for law in ("informed 0.9", "unsure 0.1"))
    assert times_plain(good) > 1.25
    assert times_plain(bad) > 0.975


@pytest.mark.parametrize(
    ("law", "plain", "wide", "least"),
    [
        ("unsure 0.1", 2.0, 1.0, 0.98),  # plain passes seemed slow, and drafts that lose to gain
        ("informed 0.9", 1.0, 10.0, 1.25),  # wide passes seemed ten times as slow
        ("informed 0.9", 3.0, 3.0, 1.25),  # the machine has become faster
        ("informed 0.9", 0.4, 0.4, 1.25),  # and slower
    ],
)
def test_what_was_measured_in_a_busy_moment_at_load_is_soon_found_wrong(
    law: str, plain: float, wide: float, least: float
) -> None:
    costs = COSTS["1B, 2 cores"]
    controller = controller_for(made_up(LAWS[law], changed(costs, plain, wide), 9, seed=1))
    told = made_up(LAWS[law], costs, 3000, seed=1)
    adaptive(told, controller)
    assert told.plain_seconds / adaptive(told, controller) > least


@pytest.mark.parametrize("case", TOGETHER)
def test_replies_at_once_are_never_much_slower_than_without_drafts(case: str) -> None:
    assert times_plain_together(case) > 0.97


def test_replies_at_once_gain_where_rows_are_cheap() -> None:
    assert times_plain_together("GPU: 2 at once, informed 0.9") > 1.6
    assert times_plain_together("GPU: 4 at once, informed 0.9") > 1.3
    assert times_plain_together("1B, 2 cores: 2 at once, informed 0.9") > 1.25


def test_drafts_shrink_with_the_number_of_replies() -> None:
    each = []
    for n in (1, 2, 4, 8):
        made = Together([made_up(LAWS["informed 0.9"], COSTS["demo, 2 cores"], 400, seed) for seed in range(n)])
        made.run()
        each.append(made.n_drafted / n)
    assert each[1] > each[2] > each[3]
