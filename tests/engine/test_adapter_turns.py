"""Whose turn it is where sequences have different LoRA adapters, and so cannot share a pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from runtime.core.draft import Adapters
from tests.support.planning import Setting

OWN: Adapters = (("own", 0.5),)


def turns(setting: Setting, n: int) -> list[tuple[tuple[int, ...], int]]:
    """Who decodes together in so many passes, and in how many in a row."""
    decoded = [tuple(sorted(setting.passed()[0])) for _ in range(n)]
    return [(who, len([*passes])) for who, passes in groupby(decoded)]


@pytest.mark.parametrize(("pass_seconds", "n"), [(0.0101, 10), (0.5, 1), (1e-4, 16)])
def test_those_with_the_same_decode_together_and_take_turns_of_a_tenth_of_a_second(pass_seconds: float, n: int) -> None:
    setting = Setting()
    setting.pass_seconds = pass_seconds
    for number, adapters in ((1, ()), (2, OWN), (3, ())):
        each = setting.speaking(number)
        each.binding = replace(each.binding, adapters=adapters)
    assert turns(setting, 4 * n) == [((1, 3), n), ((2,), n)] * 2


def test_a_prompt_is_read_between_the_turns_of_others() -> None:
    setting = Setting()
    setting.pass_seconds = 0.2
    speaking, new = setting.speaking(1), setting.add(2, 700)
    new.binding = replace(new.binding, adapters=OWN)
    passes = [setting.passed() for _ in range(6)]
    assert [bool(decoding) for decoding, _, _ in passes[:2]] == [True, False]
    assert sum(1 in decoding for decoding, _, _ in passes) >= 3
    assert 2 in passes[5][0]
    assert all(not (1 in decoding and (2 in decoding or read)) for decoding, _, read in passes)
    assert speaking.buffer.n > 13
