"""What a person typed in a chat is in no file any more after `slipstream forget`, but in the chat itself, which they
delete in the chat: bytes of all files are looked through, for the text and for its tokens.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.chats.database import default_path
from app.chats.store import Store
from app.models import distill
from bench.instruments.heads import head_for, write_head
from runtime.core.pressure import Thresholds
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair
from runtime.training import conditions
from runtime.training.place import place_of
from runtime.training.windows import Windows
from tests.support.cli import slipstream
from tests.support.distilling import DEMO, Distilling, distilling, folders
from tests.support.tui import opened, piloted
from tests.training.test_learning import Still

__all__ = ["distilling"]
MARKER = "My zebra Quixotine sleeps in the violet lighthouse of Wexcombe"
NEVER = Thresholds(0, 0, 0, 0, 0, 0)


@pytest.fixture
def pair(distilling: Distilling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """One whose head learns, and is wrong."""
    monkeypatch.setattr(conditions, "find_spec", lambda name: True)
    (tmp_path / "models").mkdir()
    head = write_head(tmp_path / "models" / "head.gguf", head_for(DEMO.target))
    return replace(DEMO, draft=head, learn=True, temperature=0.0)


def needles(engine: LoadedEngine) -> list[bytes]:
    """The text, also as JSON has it, and runs of its tokens, as they are written by anyone here."""
    ids = engine.tokenize(f" {MARKER}", special=False)
    runs = [ids[at : at + 4] for at in range(2, len(ids) - 4, 4)]
    kinds = ("<i4", "<i8", "<u2")
    texts = MARKER, MARKER[10:30], json.dumps(MARKER)
    return [text.encode(code) for text in texts for code in ("utf8", "utf-16-le")] + [
        np.array(run).astype(kind).tobytes() for run in runs for kind in kinds
    ]


def holding(root: Path, found: list[bytes]) -> set[str]:
    """The files of the profile that have one of them, by their folder's or their own name."""
    files = [path for kind in ("CACHE", "DATA", "CONFIG") for path in (root / kind).rglob("*") if path.is_file()]
    return {str(path.relative_to(root)) for path in files if any(each in path.read_bytes() for each in found)}


@piloted
async def test_nothing_that_was_typed_stays_after_forget(
    pair: Pair, distilling: Distilling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(LoadedEngine(pair, Options(512, threads=1, memory=NEVER), learns=True)) as engine:
        assert engine._learner is not None
        engine._learner._training = Still()
        default_path().parent.mkdir(parents=True, exist_ok=True)
        async with opened(default_path(), engine, pair=pair) as chat:
            await chat.ask(f"{MARKER}. What does os.path.join do?")
        engine.tend()
        words = needles(engine)
        vocabulary = engine.facts.n_vocab
    distill.answer_file().write_text(distill.YES)
    assert distilling.run(source="chats", looks=20) == 130
    assert len(folders()) == 1
    before = holding(tmp_path, words)
    place = place_of(pair.target, pair.draft or Path())
    assert Windows(place.windows, vocabulary).read()
    for what in ("CACHE/slipstream/trainings", "DATA/slipstream/learned", "DATA/slipstream/chats.db"):
        assert any(each.startswith(what) for each in before), before

    assert slipstream("forget").returncode == 0
    left = holding(tmp_path, words)
    assert {each for each in left if not each.startswith("DATA/slipstream/chats.db")} == set()
    store = Store(default_path())
    for each in store.chats():
        store.delete(each.id)
    store.close()
    assert holding(tmp_path, words) == set()
