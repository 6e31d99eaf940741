"""A draft model is found among those that are here, measured, and kept only if it pays."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.choices import choose
from app.cli.options import ModelOptions
from app.models import pair as command
from bench.instruments.heads import block_head_for, head_for, write_head
from runtime.backends import shrink
from runtime.backends.shrink import RECIPES
from runtime.core.errors import DraftError, ModelError
from runtime.engine import Options, Sampling, pairing
from runtime.engine.loaded import LoadedEngine
from runtime.engine.paired import FEW, Trial, last_verdict, remembered
from runtime.engine.pairing import Target, candidates
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.hub.cache import cached
from runtime.models.registry import load_registry
from runtime.training import made_drafts

DEMO = load_registry()["demo"]


@pytest.fixture
def folder(tmp_path: Path, tiny: Path) -> Path:
    """The demo pair's files as strangers, beside a model with another vocabulary and a damaged one."""
    assert DEMO.draft is not None
    for source, name in ((DEMO.target, "big.gguf"), (DEMO.draft, "small.gguf"), (tiny, "foreign.gguf")):
        shutil.copy(source, tmp_path / name)
    (tmp_path / "damaged.gguf").write_bytes((tmp_path / "small.gguf").read_bytes()[:1000])
    return tmp_path


@pytest.fixture
def target(folder: Path) -> Target:
    return Target(replace(DEMO, target=folder / "big.gguf", draft=None))


def test_candidates_are_the_other_models_each_once(folder: Path) -> None:
    (folder / "big-00002-of-00002.gguf").touch()
    (folder / "again.gguf").symlink_to(folder / "small.gguf")
    found = candidates(folder / "big.gguf", [folder / "small.gguf", folder / "none.gguf"])
    assert sorted(path.resolve().name for path in found) == ["damaged.gguf", "foreign.gguf", "small.gguf"]


def test_a_refusal_names_its_reason(target: Target, folder: Path) -> None:
    assert target.refusal(folder / "small.gguf") == ""
    assert target.refusal(folder / "foreign.gguf") == ""
    assert [target.is_foreign(folder / f"{name}.gguf") for name in ("foreign", "small")] == [True, False]
    assert "damaged.gguf is damaged" in target.refusal(folder / "damaged.gguf")
    assert "reads 100% of what the target reads" in target.refusal(folder / "big.gguf")


def test_a_draft_model_that_fits_is_measured_with_the_real_engine(
    target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "BUDGET", 0.5)
    plain = target.open(None)
    try:
        trial = target.try_out(plain, folder / "small.gguf")
    finally:
        plain.close()
    assert trial.gain > 0
    assert trial.per_second > 0
    assert 0 <= trial.acceptance <= 1
    one = r"one (takes|is expected to take) [\d.]+ ms"
    assert re.fullmatch(rf"{one} and checking it -?[\d.]+ ms more, a plain token [\d.]+ ms", trial.costs)


def paying(gain: float) -> Trial:
    """Of a draft whose guesses bring half a token more to a pass."""
    return Trial(gain, 0.5, 1.0, n_tried=FEW, per_pass=1.5)


@pytest.mark.parametrize(("width", "sampling"), [(8, Sampling(temperature=0.0)), (1, Sampling())])
def test_replies_are_tried_that_may_be_drafted(
    width: int, sampling: Sampling, target: Target, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Sampling]()

    def open_with(self: Target, draft: Path | None) -> LoadedEngine:
        engine = LoadedEngine(replace(self.pair, draft=draft), Options(512, drafters=()))
        engine.facts = replace(engine.facts, exactness=replace(engine.facts.exactness, width=width))
        reply = engine.reply
        monkeypatch.setattr(engine, "reply", lambda asked, how, n: (seen.append(how), reply(asked, how, n))[1])
        return engine

    monkeypatch.setattr(Target, "open", open_with)
    monkeypatch.setattr(pairing, "BUDGET", 0.0)
    plain = target.open(None)
    target.try_out(plain, folder / "small.gguf")
    plain.close()
    assert seen == [sampling, sampling]


def test_a_gain_without_right_guesses_is_the_machines(target: Target, folder: Path) -> None:
    lucky = Trial(1.4, 0.0, 1.0)
    assert target.keep({folder / "foreign.gguf": lucky}) is None
    assert target.keep({folder / "foreign.gguf": lucky, folder / "small.gguf": paying(1.1)}) == folder / "small.gguf"


def test_the_best_is_kept_and_taken_by_auto(target: Target, folder: Path) -> None:
    trials = {folder / "foreign.gguf": paying(1.1), folder / "small.gguf": paying(1.4)}
    assert target.keep(trials) == remembered(folder / "big.gguf") == folder / "small.gguf"
    assert choose(str(folder / "big.gguf"), ModelOptions())[0].draft == folder / "small.gguf"
    assert choose(str(folder / "big.gguf"), ModelOptions(draft="off"))[0].draft is None
    os.utime(folder / "small.gguf", (1, 1))  # another file by now
    assert remembered(folder / "big.gguf") is None


def test_none_is_kept_when_none_pays_and_an_earlier_one_is_forgotten(target: Target, folder: Path) -> None:
    assert target.keep({folder / "small.gguf": paying(1.4)}) is not None
    assert target.keep({folder / "small.gguf": paying(1.01)}) is None
    assert remembered(folder / "big.gguf") is None
    assert target.keep({}) is None


def test_a_target_that_is_not_there_has_no_draft_model(tmp_path: Path) -> None:
    assert remembered(tmp_path / "none.gguf") is None


def test_the_command_explains_refusals_and_ends_in_a_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)
    monkeypatch.setattr(
        Target,
        "try_out",
        lambda self, plain, path: Trial(0.9, 0.25, 10.0, FEW) if isinstance(plain, LoadedEngine) else None,
    )
    command.pair_up(str(folder / "big.gguf"), [])
    out, err = capsys.readouterr()
    assert "No draft model pays for big.gguf here (small.gguf: 0.90 times the speed without it; foreign.gguf" in out
    assert last_verdict(folder / "big.gguf") == out.strip()
    assert re.search(r"foreign.gguf \(.*\): measuring", err)
    assert "25% of its draft tokens accepted" in err
    (folder / "small.gguf").unlink()
    (folder / "foreign.gguf").unlink()
    command.pair_up(str(folder / "big.gguf"), [])
    assert "None of the 1 models that were found fits and can pay here" in capsys.readouterr().out


def test_a_draft_made_of_the_target_has_fewer_layers_and_bits_and_its_words(target: Target) -> None:
    path = target.pair.target
    recipe = next(recipe for recipe in made_drafts.makeable(path, target.facts) if recipe.name == "half-q4")
    made = made_drafts.make(path, target.facts, recipe)
    facts = ModelFacts(read_header(made))
    assert (facts.n_layers, facts.n_vocab) == (6, target.facts.n_vocab)
    assert facts.bits < target.facts.bits
    assert target.refusal(made) == ""
    target.open(made).close()
    made.with_name(f"{made.name}.incomplete").touch()  # of a process that was killed
    made_drafts.discard(path, None)
    assert not made.parent.exists()


def test_only_a_made_draft_that_pays_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)
    monkeypatch.setattr(shrink, "RECIPES", RECIPES[2:4])
    monkeypatch.setattr(Target, "try_out", lambda self, plain, path: paying(1.2 if path.stem == "big-quarter" else 0.8))
    path = folder / "big.gguf"
    command.pair_up(str(path), [], make=True)
    kept = remembered(path)
    assert kept is not None
    assert kept.name == "big-quarter.gguf"
    assert list(kept.parent.iterdir()) == [kept]
    assert "1.20 times as fast" in capsys.readouterr().out
    monkeypatch.setattr(Target, "try_out", lambda self, plain, path: Trial(0.8, 0.5, 1.0, FEW))
    command.pair_up(str(path), [])
    assert "big-quarter.gguf: 0.80 times" in capsys.readouterr().out
    assert not kept.exists()


def test_a_model_that_cannot_be_shrunk_leaves_nothing_behind(target: Target, folder: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot make a smaller copy of damaged.gguf"):
        made_drafts.make(folder / "damaged.gguf", target.facts, RECIPES[1])
    assert not list(made_drafts.folder(folder / "damaged.gguf").iterdir())


def in_the_hubs_cache(cache: Path, repo: str, file: Path) -> Path:
    """The file as the tools of Hugging Face keep it: its content once, and names of it by revision."""
    folder, revision = cache / f"models--{repo.replace('/', '--')}", "0123456789" * 4
    for each in ("blobs", "refs", f"snapshots/{revision}"):
        (folder / each).mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    blob = file.rename(folder / "blobs" / ("ab" * 20))
    named = folder / "snapshots" / revision / file.name
    named.symlink_to(Path("../../blobs") / blob.name)
    return named


def test_heads_in_the_hubs_cache_and_beside_the_target_are_found_and_those_for_others_told(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, target = tmp_path_factory.mktemp("hub"), folder / "big.gguf"
    fit = write_head(tmp_path_factory.mktemp("made") / "fit.gguf", head_for(target))
    fit = in_the_hubs_cache(cache, "somebody/big-EAGLE3-GGUF", fit)
    other = write_head(fit.parents[4] / "other.gguf", replace(block_head_for(target), vocab=1000))
    other = in_the_hubs_cache(cache, "somebody/other-DFlash-GGUF", other)
    beside = write_head(folder / "beside.gguf", block_head_for(target))
    monkeypatch.setattr(command, "cached", lambda: cached(cache))
    monkeypatch.setattr(command, "load_registry", dict)
    tried: list[Path] = []
    monkeypatch.setattr(Target, "try_out", lambda self, plain, path: tried.append(path) or paying(1.2))
    said: list[str] = []
    monkeypatch.setattr(command, "say", said.append)
    command.pair_up(str(target), [])
    assert {fit, beside} <= {*tried}
    assert other not in tried
    assert f"{other}: no: it is for 1,000 tokens, and the target has 4,096" in said


def test_a_head_that_could_not_be_opened_is_no_trial(target: Target, folder: Path) -> None:
    head = write_head(folder / "head.gguf", replace(block_head_for(folder / "big.gguf"), extra="blk.0.odd.weight"))
    assert target.refusal(head) == ""
    plain = target.open(None)
    with pytest.raises(DraftError, match=r"the draft head was left out: head\.gguf could not be loaded"):
        target.try_out(plain, head)
    plain.close()
