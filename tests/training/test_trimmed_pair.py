"""`models pair` tries copies with the words of the user's replies, keeps what is fastest, and `forget` wipes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from app.chats.database import latest_replies
from app.chats.store import Store
from app.cli.main import app
from app.models import pair as command
from bench.instruments.shapes import TINY, write_random
from runtime.backends import shrink
from runtime.core.errors import ModelError, SlipstreamError
from runtime.engine.paired import Trial, is_settled, remembered
from runtime.engine.pairing import Target
from runtime.loading.profile import replies_of
from runtime.models import trimmed
from runtime.models.drafting import HeaderVocab
from runtime.models.facts import ModelFacts
from runtime.models.header import read_header
from runtime.models.registry import Pair
from runtime.models.trimmed import n_kept
from runtime.training import made_drafts, trimmed_drafts
from runtime.training.made_drafts import made_here, trim_in

pytestmark = pytest.mark.slow

VOCABULARY = 4096
SMALL, LARGE = replace(TINY, vocab=VOCABULARY), replace(TINY, vocab=VOCABULARY, layers=12)
SAID = 4000, 4001, 4002  # tokens that a past reply had
invoke = CliRunner().invoke


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target beside a small model whose table is most of it, on a machine where nothing else is."""
    monkeypatch.setattr(trimmed, "MIN_TOKENS", 1024)
    for kind in ("CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind))
    monkeypatch.setattr(command, "cached", list)
    monkeypatch.setattr(command, "load_registry", dict)
    (tmp_path / "models").mkdir()
    write_random(tmp_path / "models" / "small.gguf", SMALL, seed=1)
    return write_random(tmp_path / "models" / "large.gguf", LARGE)


def gains(monkeypatch: pytest.MonkeyPatch, gain: Callable[[Path], float]) -> list[str]:
    """Instead of measuring, every draft model gains what is said; returns what is tried."""
    tried: list[str] = []

    def try_out(self: Target, plain: object, draft: Path) -> Trial:
        self.open(draft).close()
        tried.append("words" if trim_in(draft) else draft.stem)
        return Trial(gain(draft), 0.4 if trim_in(draft) else 0.5, 1.0, 99, per_pass=1.5)

    monkeypatch.setattr(Target, "try_out", try_out)
    return tried


def trimmed_best(path: Path) -> float:
    return 1.5 if trim_in(path) else 1.2


def paired(target: Path, make: bool = False) -> Path | None:
    command.pair_up(str(target), [], make)
    return remembered(target)


def test_a_copy_with_the_words_of_past_replies_is_kept_where_it_is_faster(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replies_of(target, HeaderVocab(read_header(target))).append(np.array(SAID, dtype=np.int32))
    tried = gains(monkeypatch, trimmed_best)
    kept = paired(target)
    assert tried == ["small", "words"]
    assert kept is not None
    trim = trim_in(kept)
    assert trim is not None
    assert trim.source == target.with_name("small.gguf")
    assert {*SAID} <= {*trim.kept.tolist()}
    assert len(trim.kept) == n_kept(ModelFacts(read_header(trim.source))) == 1024
    assert oct(kept.stat().st_mode)[-3:] == "600"
    said = capsys.readouterr()
    assert "Making a copy of small.gguf with 1,024 of its 4,096 words" in said.err
    assert "1.20 times the speed without it, 50% of its draft tokens accepted\n" in said.err
    assert (
        "1.50 times the speed without it, 40% of its draft tokens accepted (50% with the whole vocabulary)" in said.err
    )
    assert f"Kept: {kept} drafts for large.gguf, 1.50 times as fast" in said.out
    modified = kept.stat().st_mtime_ns
    assert (paired(target), kept.stat().st_mtime_ns) == (kept, modified)  # found, and measured again
    assert tried[2:] == ["small", "words"]


def test_words_of_chats_count_as_well(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains(monkeypatch, trimmed_best)
    monkeypatch.setattr(command, "latest_replies", lambda: ["ÿ" * 50, "w 0"])
    kept = paired(target)
    assert kept is not None
    trim = trim_in(kept)
    assert trim is not None
    engine = Target(Pair("large", target)).open(None)
    assert {*engine.tokenize("ÿw 0")} <= {*trim.kept.tolist()}
    engine.close()


def test_where_the_whole_model_is_faster_no_copy_is_left(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains(monkeypatch, lambda path: 1.1 if trim_in(path) else 1.2)
    assert paired(target) == target.with_name("small.gguf")
    assert made_here() == []


def test_a_copy_of_a_draft_that_was_made_here_keeps_that_too(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [recipe for recipe in shrink.RECIPES if recipe.name == "quarter"]
    monkeypatch.setattr(shrink, "RECIPES", recipes)
    target.with_name("small.gguf").unlink()
    gains(monkeypatch, trimmed_best)
    kept = paired(target, make=True)
    assert kept is not None
    source = made_drafts.whole(kept)
    assert source != kept
    assert made_here() == sorted([kept, source])
    assert paired(target) == kept  # its source is a candidate, without being made again
    made_drafts.discard(target, None)
    assert made_here() == []


def test_a_model_that_is_too_large_whole_is_tried_if_its_copy_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimmed, "MIN_TOKENS", 1024)
    large = Target(Pair("x", write_random(tmp_path / "large.gguf", replace(LARGE, layers=4))))
    small = write_random(tmp_path / "small.gguf", SMALL)
    assert ModelFacts(read_header(small)).n_bytes_per_token > 0.5 * large.facts.n_bytes_per_token
    assert large.refusal(small) == ""


def test_a_copy_is_no_candidate_of_its_own(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains(monkeypatch, trimmed_best)
    kept = paired(target)
    assert kept is not None
    assert "is a copy of" in Target(Pair("large", target)).refusal(kept)


@pytest.mark.parametrize("lost", ["small.gguf", "copy"])
def test_a_copy_is_forgotten_when_it_or_its_source_is_another(
    lost: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gains(monkeypatch, trimmed_best)
    kept = paired(target)
    assert kept is not None
    found = [target.with_name("small.gguf")]
    os.utime(kept if lost == "copy" else found[0], (1, 1))
    assert remembered(target) is None
    assert not is_settled(target, found)


def test_copies_are_listed_and_wiped(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains(monkeypatch, trimmed_best)
    kept = paired(target)
    assert kept is not None
    found = command.usual_candidates(target)
    assert is_settled(target, found)
    [made] = json.loads(invoke(app, ["models", "list", "--json"]).stdout)["made"]
    small = str(target.with_name("small.gguf"))
    assert made == {"path": str(kept), "bytes": kept.stat().st_size, "of": small, "words": 1024}
    assert f"1,024 words of {small}" in invoke(app, ["models", "list"]).stdout
    said = invoke(app, ["forget"]).stdout
    assert "Removed the draft models that were made from your replies" in said
    assert (made_here(), remembered(target), is_settled(target, found)) == ([], None, False)
    assert "Removed the draft models" not in invoke(app, ["forget"]).stdout


def test_a_copy_that_cannot_be_removed_is_named(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gains(monkeypatch, trimmed_best)
    kept = paired(target)
    assert kept is not None

    def held_open(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "another program has it open")

    monkeypatch.setattr(Path, "unlink", held_open)
    with pytest.raises(SlipstreamError, match="cannot be removed"):
        made_drafts.forget()


def test_what_keeps_a_copy_from_being_made_is_said_and_the_whole_model_is_tried(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = gains(monkeypatch, trimmed_best)

    def full(place: Path, source: Path, n: int) -> None:
        raise ModelError("There is no room.")

    monkeypatch.setattr(trimmed_drafts, "make_room", full)
    assert paired(target) == target.with_name("small.gguf")
    assert tried == ["small"]
    assert "There is no room." in capsys.readouterr().err


def test_the_latest_replies_of_chats_are_read_up_to_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    assert latest_replies(path) == []
    store = Store(path)
    chat, last = store.new_chat("question"), None
    for i in range(3):
        last = store.add_message(chat, last, "user", f"question {i}")
        last = store.add_message(chat, last, "assistant", f"answer {i}")
    assert latest_replies(path) == ["answer 2", "answer 1", "answer 0"]
    assert latest_replies(path, most=20) == ["answer 2", "answer 1"]
    store.close()
    path.write_bytes(b"no database")
    assert latest_replies(path) == []
