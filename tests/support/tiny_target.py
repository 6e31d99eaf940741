"""Fixtures of a target of four layers with random weights, for tests of heads: its file, and the model; and a check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.instruments.heads import PROMPT
from bench.instruments.shapes import TINY, write_random
from runtime.backends.model import LlamaModel
from runtime.engine import Ids, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair

TARGET = replace(TINY, layers=4)


@pytest.fixture(scope="module")
def target_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("target") / "target.gguf", TARGET)


@pytest.fixture(scope="module")
def target(target_file: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(target_file)
    yield model
    model.close()


def assert_drafts_the_same_text(target_file: Path, head: Path) -> None:
    """With the head, which is on by default, a reply with a seed is the one without."""
    texts, n_drafted = [], 0
    for drafters in ((), None):
        engine = LoadedEngine(
            Pair("any", target_file, head), Options(512, drafters, threads=1, fixed_k=None if drafters == () else 3)
        )
        chunks = list(engine.reply(Ids(PROMPT), Sampling(temperature=0.8, seed=3), 24))
        texts.append([token for chunk in chunks for token in chunk.tokens])
        assert chunks[-1].stats is not None
        n_drafted = chunks[-1].stats.draft_n
        engine.close()
    assert texts[0] == texts[1]
    assert n_drafted > 0
