"""Pairs whose draft is a head or a drafting layer, for benchmarks.

Planted ones have a chosen acceptance rate. DFlash heads propose several tokens from one state and cannot be planted, so
theirs is random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.instruments.heads import block_head_for, head_for, write_head
from bench.instruments.planted import plant
from bench.instruments.planted_heads import plant_eagle, plant_mtp, plant_state_heads
from bench.instruments.shapes import DRAFT_10M, Shape
from bench.instruments.state_heads import state_head_for, write_state_head
from runtime.drafters.registry import networks
from runtime.models.registry import Pair, load_registry

FAMILIES = "qwen35mtp", "glm4moe"
HEADS = "eagle", "dflash", "dspark", *networks()
WIDTH, LAYERS, VOCAB = 512, 12, 32_768  # of planted targets with a drafting layer


def random_head(path: Path, target: Path, drafter: str, words: int) -> Path:
    """Write a head for that drafter, right only by chance, which can propose `words` tokens."""
    if drafter in networks():
        return write_state_head(path, state_head_for(target, drafter, words=words))
    block = {"dflash": {}, "dspark": {"rank": 8}}.get(drafter)
    return write_head(path, head_for(target, words) if block is None else block_head_for(target, words, **block))


def random_dflash(folder: Path) -> Pair:
    """Return the bundled target with a DFlash head that is right only by chance."""
    demo = load_registry()["demo"]
    return replace(demo, draft=write_head(folder / "dflash.gguf", block_head_for(demo.target)), name="random dflash")


def planted_heads(folder: Path, shape: Shape, shares: Sequence[float], words: int) -> Iterator[tuple[Pair, int]]:
    """Yield each pair with the vocabulary size of its target."""
    for share in shares:
        pair = plant(folder / f"eagle {share:.0%}", shape, DRAFT_10M, share, words=words)
        yield plant_eagle(pair, shape, share, words), shape.vocab
        for kind in networks():
            yield plant_state_heads(pair, shape, kind, share, words), shape.vocab
        for family in FAMILIES:
            yield plant_mtp(folder, family, WIDTH, LAYERS, VOCAB, share, words), VOCAB
