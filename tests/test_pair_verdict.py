"""What the search for a draft model found is told where people look: by the command, by `models info` and by F2."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.models import info
from app.models import pair as command
from app.models.pair import FEW
from app.tui.dialogs.why_summary import other_guesses
from bench.instruments.architectures.writer import write_family
from runtime.core.errors import DraftError, SettingsError
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.models.registry import Pair
from runtime.tools.pairing import Target, Trial
from tests.test_models_pair import folder
from tests.test_tui_parts import controller, heard

__all__ = ["folder"]


def test_a_draft_that_cannot_pay_is_told_with_its_numbers_and_one_that_was_hardly_asked_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)

    def cannot_pay(self: Target, plain: object, path: Path) -> Trial:
        raise DraftError("the draft model was left out, because a draft token takes 20 ms, a plain token 31 ms")

    monkeypatch.setattr(Target, "try_out", cannot_pay)
    command.pair_up(str(folder / "big.gguf"), [])
    told = capsys.readouterr().out
    assert "None pays for big.gguf here (small.gguf: a draft token takes 20 ms, a plain token 31 ms)." in told
    info.show(str(folder / "big.gguf"), as_json=False)
    assert f"draft search  {told.strip()}" in capsys.readouterr().out
    monkeypatch.setattr(Target, "try_out", lambda self, plain, path: Trial(1.58, 0.0, 10.0, FEW - 1, costs="x"))
    command.pair_up(str(folder / "big.gguf"), [])
    told = "".join(capsys.readouterr())
    assert "small.gguf: it was hardly asked for guesses, since x" in told
    assert "1.58" not in told


def test_a_search_for_a_draft_model_is_advised_once_and_then_told() -> None:
    alone = replace(heard(controller((10e-3, 11e-3), 1e-4), 3, 3), drafters=())
    assert "`slipstream models pair` finds the one" in other_guesses(Stats(), alone, "")
    assert other_guesses(Stats(), alone, "None pays.") == "Draft models that are here were tried. None pays."


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("jamba", "cannot take back what a draft leaves in the recurrent layers of jamba models"),
        ("qwen3embedding", "it is an embedding model and writes no text"),
    ],
)
def test_a_target_for_which_nothing_can_draft_is_told_so_before_anything_is_tried(
    family: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write_family(family, tmp_path)
    command.pair_up(str(target), [])
    said = capsys.readouterr()
    assert said.out.startswith(f"Nothing can draft for {family}.gguf: ")
    assert why in said.out
    assert said.err == ""


def test_an_embedding_model_that_is_asked_to_write_says_what_it_is(tmp_path: Path) -> None:
    engine = LoadedEngine(Pair("x", write_family("qwen3embedding", tmp_path)), Options(threads=1, n_ctx=256))
    with pytest.raises(SettingsError, match=r"This is an embedding model \(qwen3embedding\.gguf\)"):
        list(engine.reply("hello", Sampling(temperature=0), 4))
    assert len(engine.embed(engine.tokenize("hello"))) == engine.facts.n_embd
    assert not engine.facts.can_draft
    engine.close()
