"""What the search for a draft model found is told where people look: by the command, by `models info` and by F2."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.models import info, search_process
from app.models import pair as command
from app.tui.dialogs.why_summary import other_guesses, three_sentences
from bench.instruments.architectures.writer import write_family
from bench.instruments.toy import facts
from runtime.core.errors import DraftError, ModelError, SettingsError
from runtime.engine import Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.paired import FEW, Trial, memo_of, named, note_failure
from runtime.engine.pairing import Target
from runtime.engine.pooled import PooledEngine
from runtime.engine.stats import Stats
from runtime.models.registry import Pair
from runtime.speculative.control.explain import Explanation, Pass
from runtime.speculative.control.reasons import Reason
from tests.support.scripted import ScriptedEngine
from tests.training.test_models_pair import folder
from tests.tui.test_parts import controller, heard

__all__ = ["folder"]


def test_a_draft_that_cannot_pay_is_told_with_its_numbers_and_one_that_was_hardly_asked_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)

    def cannot_pay(self: Target, plain: object, path: Path) -> Trial:
        raise DraftError("the draft model was left out, because a draft token takes 20 ms, a plain token 31 ms")

    (folder / "foreign.gguf").unlink()
    monkeypatch.setattr(Target, "try_out", cannot_pay)
    command.pair_up(str(folder / "big.gguf"), [])
    told = capsys.readouterr().out
    assert "No draft model pays for big.gguf here (small.gguf: a draft token takes 20 ms, a plain token 31 ms)" in told
    info.show(str(folder / "big.gguf"), as_json=False)
    assert f"draft search  {told.strip()}" in capsys.readouterr().out
    monkeypatch.setattr(Target, "try_out", lambda self, plain, path: Trial(1.58, 0.0, 10.0, FEW - 1, costs="x"))
    command.pair_up(str(folder / "big.gguf"), [])
    told = "".join(capsys.readouterr())
    assert "small.gguf: it was rarely used, since x" in told
    assert "1.58" not in told


def test_a_search_for_a_draft_model_is_advised_once_and_then_told() -> None:
    alone = replace(heard(controller((10e-3, 11e-3), 1e-4), 3, 3), drafters=())
    assert "`slipstream models pair` finds the one" in other_guesses(Stats(), alone, may_search=True)
    assert other_guesses(Stats(), alone, may_search=False) == ""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine whose target is a file, with a cache of its own and no draft model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "big.gguf").write_bytes(b"weights")
    scripted = ScriptedEngine()
    scripted.pair = Pair("big", tmp_path / "big.gguf")
    return scripted


def answers(engine: Any, stats: Stats = Stats(), explanation: Explanation | None = None) -> str:  # noqa: B008
    """What F2 says."""
    alone = explanation or replace(heard(controller((10e-3, 11e-3), 1e-4), 3, 3), drafters=())
    return " ".join(answer for _, answer in three_sentences(stats, alone, engine))


def test_f2_knows_the_search_for_a_draft_model(engine: Any) -> None:
    target, draft = engine.pair.target, engine.pair.target.with_name("small.gguf")
    draft.write_bytes(b"fewer")
    advice = "`slipstream models pair`"
    assert advice in answers(engine)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    search_process.note(process.pid, target)
    assert "is being tried in the background" in answers(engine)
    assert advice not in answers(engine)
    process.communicate(b"\n")
    assert "is being tried" not in answers(engine)
    memo_of(target).write({"draft": "", "found": "", "verdict": "No draft model pays for big.gguf here."})
    assert "No draft model pays for big.gguf here." in answers(engine)
    assert advice not in answers(engine)
    memo_of(target).write(named("draft", draft) | named("source", draft) | {"verdict": "Kept."})
    assert "small.gguf was found" in answers(engine)
    assert advice not in answers(engine)


def test_f2_advises_no_search_after_one_that_failed_or_where_nothing_can_draft(engine: Any) -> None:
    note_failure(engine.pair.target, "no memory.")
    assert "The search failed: no memory." in answers(engine)
    assert "`slipstream models pair`" not in answers(engine)
    memo_of(engine.pair.target).write({})
    engine.facts = facts(can_draft=False)
    assert "`slipstream models pair`" not in answers(engine)


def test_f2_tells_what_the_named_draft_costs_as_measured_where_it_was(engine: Any) -> None:
    engine.pair = replace(engine.pair, draft=engine.pair.target.with_name("small.gguf"))
    known = heard(controller((40e-3, 60e-3), 0.36), 0, 1)
    known = replace(known, drafters=tuple(replace(each, rest_seconds=0.36) for each in known.drafters))
    estimated = "small.gguf guesses here. A guess is expected to take 360 ms; a token of the model alone takes 40 ms."
    assert estimated in answers(engine, Stats(), known)
    guessed = Stats(steps=[Pass(0.1, "model", 2, 1, 2, draft_seconds=72e-3)] * 3)
    assert "small.gguf guesses here. A guess took 36 ms;" in answers(engine, guessed, known)


def test_f2_tells_once_why_the_named_draft_is_left_out(engine: Any) -> None:
    engine.pair = replace(engine.pair, draft=engine.pair.target.with_name("small.gguf"))
    why = "the draft model was left out, because it cannot pay here"
    engine.facts = facts(left_out=why, remark=why)
    plain = Stats(steps=[Pass(10e-3, "none", 0, 0, 1)] * 40, decode_seconds=0.4, reason=Reason("cost", why))
    told = answers(engine, plain)
    assert "The model wrote every token by itself." in told
    assert f"small.gguf is not used: {why}." in told
    assert told.count(why) == 1


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
    pair, options = Pair("x", write_family("qwen3embedding", tmp_path)), Options(threads=1, n_ctx=256)
    with pytest.raises(ModelError, match=r"qwen3embedding\.gguf is an embedding model"):
        LoadedEngine(pair, options)
    engine = PooledEngine(pair, options)
    with pytest.raises(SettingsError, match=r"This is an embedding model \(qwen3embedding\.gguf\)"):
        list(engine.reply("hello", Sampling(temperature=0), 4))
    assert engine.embed(engine.texts_to_ids(["hello"])).shape == (1, engine.facts.n_embd)
    assert not engine.facts.can_draft
    engine.close()
