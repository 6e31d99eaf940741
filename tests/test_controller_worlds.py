"""The controller where costs jump, texts change and processes end: simulated, by scripted times; no clock, no model."""

from __future__ import annotations

import pytest

from bench.simulate import worlds
from tests.support.traces import World

WORLDS = {world.name: world for world in worlds(n=1200, seed=1)}


def times_plain(world: World) -> float:
    return sum(trace.plain_seconds for trace in world.traces) / world.lived()


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_never_much_slower_than_plain_decode(name: str) -> None:
    assert times_plain(WORLDS[name]) > (0.94 if "short replies" in name or "stall" in name else 0.98)


@pytest.mark.parametrize("where", ["1B, 2 cores", "demo, 2 cores", "GPU"])
def test_short_replies_gain_from_what_the_ones_before_have_learned(where: str) -> None:
    good, bad = (WORLDS[f"{where}: short replies, {law}"] for law in ("informed 0.9", "unsure 0.1"))
    assert times_plain(good) > 1.25
    assert times_plain(bad) > 0.975
