"""Heads that were planted as learned ones: what is measured with them is a head that learns."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bench.instruments.planted import plant, prompts
from bench.instruments.shapes import DRAFT_10M
from bench.never_slower import begin_training, plant_learned, rest
from runtime.core.pressure import Thresholds
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.training import conditions

SHAPE = replace(DRAFT_10M, vocab=8192)
NEVER = Thresholds(0, 0, 0, 0, 0, 0)


def test_a_reply_drafts_with_the_learned_head_and_holds_the_training_that_ran_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(conditions, "find_spec", lambda name: True)
    monkeypatch.setattr(conditions, "is_on_battery", lambda: False)
    pair = plant_learned(plant(tmp_path, SHAPE, SHAPE, 0.9), SHAPE, 0.9, 256)
    options = Options(512, fixed_k=3, drafters=("model",), threads=1, memory=NEVER)
    (asked,) = prompts(SHAPE.vocab, [0])
    with closing(LoadedEngine(pair, options, learns=True)) as engine:
        training = begin_training(engine)
        assert training.is_held
        rest(engine, training)
        assert training.is_running
        assert not training.is_held
        (*_, last) = engine.reply(asked, Sampling(temperature=0), 60)
        assert training.is_held
        assert last.stats is not None
        assert last.stats.acceptance_rate > 0.6  # the pair's own head is never right
    assert not training.is_running


def test_a_head_that_does_not_learn_is_not_measured_as_one(tmp_path: Path) -> None:
    pair = plant(tmp_path, SHAPE, SHAPE, 0.9)
    with (
        closing(LoadedEngine(pair, Options(512), learns=True)) as engine,
        pytest.raises(SystemExit, match="does not learn"),
    ):
        begin_training(engine)
