"""Heads of replies that are made together: each reply says what it says alone, whether heads draft or are parked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.instruments.architectures.writer import write_family
from bench.instruments.concurrent_replies import Case, alone, concurrently, n_different
from bench.instruments.heads import PROMPT, block_head_for, head_for, write_head
from bench.instruments.shapes import TINY, write_random
from runtime.core.draft import Tokens
from runtime.core.drafter import Budget, DraftGenerator
from runtime.drafters.dflash import DflashDrafter
from runtime.drafters.head import HeadDrafter
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

CASES: list[Case] = [
    (Ids(PROMPT[: 20 + 4 * i]), Sampling(temperature, seed=i), None) for i in range(3) for temperature in (0.0, 0.9)
]
Real = Callable[[HeadDrafter, Tokens, Budget], DraftGenerator]


def with_eagle(folder: Path) -> Pair:
    target = write_random(folder / "target.gguf", replace(TINY, layers=4))
    return Pair("eagle", target, write_head(folder / "head.gguf", head_for(target)))


def with_dflash(folder: Path) -> Pair:
    target = write_random(folder / "target.gguf", replace(TINY, layers=4))
    return Pair("dflash", target, write_head(folder / "head.gguf", block_head_for(target)))


def with_own_layers(folder: Path) -> Pair:
    return Pair("mtp", write_family("glm4moe", folder))


def with_own_layers_of_a_hybrid(folder: Path) -> Pair:
    return Pair("mtp", write_family("qwen35mtp", folder))


@pytest.mark.parametrize("make", [with_eagle, with_dflash, with_own_layers, with_own_layers_of_a_hybrid])
@pytest.mark.parametrize("k", [3, None], ids=["drafts of three", "as it pays"])
def test_replies_say_what_each_says_alone(
    make: Callable[[Path], Pair], k: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, drafted = make(tmp_path), list[int]()
    for kind in (HeadDrafter, DflashDrafter):

        def drafting(self: HeadDrafter, context: Tokens, budget: Budget, real: Real = kind.drafting) -> DraftGenerator:
            draft = yield from real(self, context, budget)
            drafted.append(len(draft.tokens))
            return draft

        monkeypatch.setattr(kind, "drafting", drafting)
    options = Options(512, (), threads=1, slots=4, fast=True)
    plain = LoadedEngine(pair, options)
    whole = alone(plain, CASES, 24)
    plain.close()
    engine = LoadedEngine(pair, replace(options, drafters=(pair.name,), fixed_k=k))
    together = concurrently(engine, CASES, 24, 3, seed=1)
    engine.close()
    assert not n_different(together, whole)
    assert sum(drafted) > 0 or k is None
