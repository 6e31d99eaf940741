"""What a trial of a draft model tells: costs as measured, and a ratio only of enough guesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.models import pair as command
from runtime.core.errors import ModelError
from runtime.engine import pairing
from runtime.engine.paired import FEW, Trial, is_settled, last_verdict, remembered
from runtime.engine.pairing import Target, costs_of
from runtime.loading import layout
from runtime.loading.layout import LayoutTrial
from runtime.loading.neighbours import Neighbours
from tests.training.test_models_pair import folder, paying, target
from tests.tui.test_parts import controller, heard

__all__ = ["folder", "target"]


def test_the_cost_of_a_guess_is_the_measured_one_where_there_is_one() -> None:
    estimate = heard(controller((40e-3, 60e-3), 0.36), 0, 1)
    estimate = replace(estimate, drafters=tuple(replace(each, rest_seconds=0.36) for each in estimate.drafters))
    assert "one is expected to take 360 ms and checking it" in costs_of(estimate, "model")
    assert "one takes 36 ms and checking it" in costs_of(estimate, "model", 36e-3)


def test_a_ratio_is_told_only_of_enough_guesses_and_never_more_than_they_explain(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)
    for trial, told in (
        (Trial(1.3, 0.0, 10.0), "it was rarely used"),
        (Trial(1.3, 0.5, 10.0, FEW - 1, per_pass=1.5), "it was rarely used"),
        (Trial(1.3, 0.01, 10.0, FEW, per_pass=1.01), "1.01 times the speed without it"),
    ):
        monkeypatch.setattr(Target, "try_out", lambda self, plain, path, trial=trial: trial)
        command.pair_up(str(folder / "big.gguf"), [])
        said = capsys.readouterr()
        assert f"pays for big.gguf here (small.gguf: {told}" in said.out
        assert "1.30" not in said.out + said.err
        assert remembered(folder / "big.gguf") is None


def test_a_search_that_failed_is_told_and_may_be_repeated(
    target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = target.keep({folder / "small.gguf": paying(1.4)}, [])
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(Target, "open", lambda self, draft: (_ for _ in ()).throw(ModelError("no memory.")))
    with pytest.raises(ModelError, match="no memory"):
        command.pair_up(str(folder / "big.gguf"), [])
    assert last_verdict(folder / "big.gguf") == "The search failed: no memory."
    assert remembered(folder / "big.gguf") == kept
    assert not is_settled(folder / "big.gguf", command.usual_candidates(folder / "big.gguf"))


@pytest.mark.parametrize("is_calm", [True, False])
def test_a_search_that_others_disturbed_decides_nothing(
    target: Target, folder: Path, is_calm: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "big.gguf"
    for name, found in (("cached", list), ("load_registry", dict)):
        monkeypatch.setattr(command, name, found)
    monkeypatch.setattr(command, "settle", lambda _: True)
    slow = Trial(0.9, 0.5, 10.0, FEW, per_pass=1.5, is_calm=is_calm)
    monkeypatch.setattr(Target, "try_out", lambda *_: slow)
    assert command.pair_up(str(path), []) is is_calm
    assert is_settled(path, command.usual_candidates(path)) is is_calm
    assert ("tried again later" in capsys.readouterr().out) is not is_calm
    monkeypatch.setattr(Target, "try_out", lambda *_: replace(paying(1.4), is_calm=is_calm))
    assert command.pair_up(str(path), [])  # what paid all the same is used
    assert remembered(path) == folder / "small.gguf"


def test_a_trial_knows_whether_others_computed(target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "BUDGET", 0.0)
    plain = target.open(None)
    try:
        for is_calm in (True, False):
            monkeypatch.setattr(Neighbours, "are_calm", lambda _, is_calm=is_calm: is_calm)
            assert target.try_out(plain, folder / "small.gguf").is_calm is is_calm
    finally:
        plain.close()


def test_layouts_that_were_compared_beside_others_are_not_remembered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "big.gguf"
    monkeypatch.setattr(command, "compare", lambda _: LayoutTrial(1, 13, 13, 0.98, 0.96, is_calm=False))
    assert not command.settle_layout(path)
    assert layout.remembered(path) is None
    assert "are compared later" in capsys.readouterr().err
    monkeypatch.setattr(command, "compare", lambda _: LayoutTrial(1, 13, 13, 0.98, 0.96))
    assert command.settle_layout(path)
    assert layout.remembered(path) is not None
