"""Pairs whose draft is a head or a drafting layer, for benchmarks: planted ones that are right as often as is dialled,
and one of chance where none can be planted (DFlash, which guesses several tokens from one state).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench.instruments.heads import block_head_for, write_head
from bench.instruments.planted import plant
from bench.instruments.planted_heads import plant_eagle, plant_mtp
from bench.instruments.shapes import DRAFT_10M, Shape
from runtime.models.registry import Pair, load_registry

FAMILIES = "qwen35mtp", "glm4moe"
WIDTH, LAYERS, VOCAB = 512, 12, 32_768  # of planted targets that draft by themselves


def random_dflash(folder: Path) -> Pair:
    """The bundled target with a DFlash head that is right by chance only."""
    demo = load_registry()["demo"]
    return replace(demo, draft=write_head(folder / "dflash.gguf", block_head_for(demo.target)), name="random dflash")


def planted_heads(folder: Path, shape: Shape, shares: Sequence[float], words: int) -> Iterator[tuple[Pair, int]]:
    """Each pair, and how many tokens its target has."""
    for share in shares:
        pair = plant(folder / f"eagle {share:.0%}", shape, DRAFT_10M, share, words=words)
        yield plant_eagle(pair, shape, share, words), shape.vocab
        for family in FAMILIES:
            yield plant_mtp(folder, family, WIDTH, LAYERS, VOCAB, share, words), VOCAB
