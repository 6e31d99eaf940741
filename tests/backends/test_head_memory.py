"""What heads take is estimated from headers within 3% of what is allocated for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.instruments.heads import HeadShape, block_head_for, head_for, write_head
from bench.instruments.planted_heads import plant_mtp
from bench.instruments.shapes import Shape, write_random
from tests.support.head_memory import Pair

WIDE = Shape(width=256, layers=6, heads=4, kv_heads=2, ffn=768, vocab=49_152)
SLOTS = pytest.mark.parametrize("slots", [1, 9])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the C library how large a buffer is")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("target") / "target.gguf", WIDE)


def assert_right(pair: Pair) -> None:
    assert pair.estimated() == pytest.approx(pair.allocated(), rel=0.03)


@SLOTS
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (head_for, {}),
        (head_for, {"words": 8192}),
        (head_for, {"ffn": 4096, "own_table": True}),
        (block_head_for, {}),
        (block_head_for, {"words": 8192, "depth": 5, "block": 16}),
        (block_head_for, {"rank": 64}),
    ],
    ids=["eagle", "eagle of few words", "eagle with a table", "dflash", "dflash of few words", "dspark"],
)
def test_a_heads_memory_is_estimated(
    target: Path, tmp_path: Path, make: Callable[[Path], HeadShape], change: dict[str, int], slots: int
) -> None:
    shape = replace(make(target), heads=WIDE.heads, **change)  # type: ignore[arg-type]
    assert_right(Pair(target, write_head(tmp_path / "head.gguf", shape), slots))


@pytest.mark.slow
@SLOTS
@pytest.mark.parametrize("family", ["qwen35mtp", "glm4moe"])
def test_the_memory_of_a_targets_own_drafting_layer_is_estimated(family: str, tmp_path: Path, slots: int) -> None:
    target = plant_mtp(tmp_path, family, width=256, layers=4, vocab=WIDE.vocab, acceptance=1).target
    assert_right(Pair(target, None, slots))
