"""Medusa and Hydra heads in use: what they never change, what they are refused for, what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.instruments.heads import random_weights, state_head_for, write_state_head
from bench.instruments.planted import plant, prompts
from bench.instruments.planted_heads import plant_state_heads
from bench.instruments.shapes import DRAFT_10M, TINY, write_random
from runtime.drafters.registry import networks
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models import own_heads
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.heads import unfit
from tests.support import tiny_target

target_file = tiny_target.target_file

KINDS = pytest.mark.parametrize("kind", sorted(networks()))


@KINDS
def test_planted_heads_are_right_where_they_should_be(kind: str, tmp_path: Path) -> None:
    pair, prompt = plant(tmp_path / "pair", DRAFT_10M, DRAFT_10M, 1.0, words=256), prompts(DRAFT_10M.vocab, [5], 256)[0]
    said, shares = list[str](), list[float]()
    for acceptance in (None, 1.0, 0.6):
        planted = plant_state_heads(pair, DRAFT_10M, kind, acceptance or 1.0, words=256)
        engine = LoadedEngine(
            planted, Options(512, (kind,) if acceptance else (), fixed_k=3 if acceptance else None, threads=1)
        )
        chunks = list(engine.reply(prompt, Sampling(temperature=0.0), 80))
        said.append("".join(chunk.text for chunk in chunks))
        stats = chunks[-1].stats
        assert stats is not None
        if acceptance:
            shares.append(stats.draft_n_accepted / stats.draft_n)
        engine.close()
    assert said[1:] == said[:1] * 2
    assert shares[0] == 1.0
    assert 0.2 < shares[1] < 0.8


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"head.2.0.bias": None}, "it has no head.2.0.bias"),
        ({"head.1.0.weight": (64, 32)}, "head.1.0.weight has the size (64, 32), not (64, 64)"),
        ({"head.0.0.norm.weight": (64,)}, "it has the tensor 'head.0.0.norm.weight', which no medusa head has"),
        ({"output.weight": (100, 64)}, "it drafts 100 tokens and does not state which"),
        ({"head.0.output.weight": (512, 64), "head.1.output.weight": (64, 64)}, "head.1.output.weight has the size"),
    ],
    ids=["lacking", "misshapen", "unknown", "words", "words of two heads"],
)
def test_wrong_tensors_are_named(
    target_file: Path, tmp_path: Path, change: dict[str, tuple[int, ...] | None], clause: str
) -> None:
    shape = state_head_for(target_file)
    weights = random_weights(shape)
    for name, size in change.items():
        if size is None:
            del weights[name]
        else:
            weights[name] = np.zeros(size, dtype=np.float32)
    file = write_state_head(tmp_path / "head.gguf", shape, weights=weights)
    target = ModelFacts(read_model_header(target_file))
    assert unfit(ModelFacts(read_model_header(file)), target, file).startswith(clause)


def test_a_large_vocabulary_is_drafted_in_part_where_the_file_has_no_output(tmp_path: Path) -> None:
    """Reading all of the target's matrix for every draft would cost more than the draft is worth."""
    target = ModelFacts(read_model_header(write_random(tmp_path / "target.gguf", replace(TINY, vocab=49_152))))
    file = write_state_head(tmp_path / "head.gguf", state_head_for(tmp_path / "target.gguf"))
    assert own_heads.n_outputs(ModelFacts(read_model_header(file))) == 12_288
    assert unfit(ModelFacts(read_model_header(file)), target, file) == ""
