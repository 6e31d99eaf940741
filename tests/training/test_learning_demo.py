"""A head that learns beside the bundled target: the text is the same whatever is used, and heads change between
replies.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.instruments.heads import head_for, write_head
from runtime.core.pressure import Thresholds
from runtime.engine import Message, Options, Sampling, forget_replies
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import Pair, load_registry
from runtime.training import conditions, learned_head
from runtime.training.background import BackgroundLearner
from runtime.training.place import Place, forget, place_of, root
from runtime.training.windows import Windows
from tests.support.cli import failing, slipstream
from tests.support.waiting import wait_for
from tests.training.test_learning import BETTER, Still

pytestmark = pytest.mark.slow

DEMO = load_registry()["demo"]
QUESTIONS = "What does os.path.join do?", "Explain textwrap.wrap.", "What is a deque?"
WAYS = Sampling(temperature=0), Sampling(temperature=1.2, seed=7)
NEVER = Thresholds(0, 0, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head(tmp_path_factory.mktemp("heads") / "head.gguf", head_for(DEMO.target))


@pytest.fixture
def pair(head: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(conditions, "find_spec", lambda name: True)
    forget()
    yield replace(DEMO, draft=head, learn=True)
    forget()


@pytest.fixture
def engine(pair: Pair) -> Iterator[LoadedEngine]:
    engine = LoadedEngine(pair, Options(512, fixed_k=3, drafters=("model",), threads=1, memory=NEVER), learns=True)
    still(engine)
    yield engine
    engine.close()


def still(engine: LoadedEngine) -> BackgroundLearner:
    """The engine's learner, which begins no process."""
    learner = engine._learner
    assert learner is not None
    learner._training = Still()
    return learner


def said(engine: LoadedEngine, question: str, sampling: Sampling) -> tuple[list[int], int]:
    """The reply's tokens, and how many of them were drafted."""
    chunks = list(engine.reply([Message("user", question)], sampling, 40))
    stats = chunks[-1].stats
    return [token for chunk in chunks for token in chunk.tokens], stats.draft_n if stats else 0


def learned(pair: Pair, seed: int) -> Path:
    """Another random head becomes the one that is to be used."""
    place = place_of(pair.target, pair.draft or Path())
    new = write_head(place.work / "new.gguf", head_for(pair.target), seed)
    learned_head.take(place, new, BETTER, 3, "key")
    current = learned_head.current(place)
    assert current is not None
    return current


def use(engine: LoadedEngine) -> None:
    """Between two replies, until the head is there."""
    engine.tend()
    wait_for(
        lambda: any(each.name == "eagle" for each in engine.decoder.active.drafters),
        engine.decoder.active.degrade,
    )


def test_the_text_is_the_same_whatever_was_learned(pair: Pair, engine: LoadedEngine) -> None:
    plain = LoadedEngine(DEMO, Options(512, drafters=(), threads=1))
    expected = {(q, way): said(plain, q, way)[0] for q in QUESTIONS for way in WAYS}
    plain.close()
    for seed in (None, 1, 2):
        path = None if seed is None else learned(pair, seed)
        use(engine)
        assert engine._loaded.learned == path
        for (question, way), tokens in expected.items():
            found, n_drafted = said(engine, question, way)
            assert found == tokens
            assert n_drafted > 0


def test_a_reply_that_begins_before_the_new_head_is_open_has_the_same_text(pair: Pair, engine: LoadedEngine) -> None:
    expected = said(engine, QUESTIONS[0], WAYS[0])[0]
    learned(pair, 1)
    engine.tend()
    assert said(engine, QUESTIONS[0], WAYS[0])[0] == expected


def test_the_next_start_uses_what_was_learned(pair: Pair, engine: LoadedEngine) -> None:
    path = learned(pair, 1)
    later = LoadedEngine(pair, Options(512, fixed_k=3, drafters=("model",), threads=1))  # what measures, too
    assert later._loaded.learned == path
    later.close()


def test_what_was_learned_is_used_also_where_nothing_can_be_trained(
    pair: Pair, engine: LoadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = learned(pair, 1)
    monkeypatch.setattr(conditions, "find_spec", lambda name: None)
    later = LoadedEngine(pair, Options(512, fixed_k=3, drafters=("model",), threads=1), learns=True)
    assert later._loaded.learned == path
    assert "pip install" in later.status.learning
    later.close()


def test_a_head_that_was_gone_back_to_or_forgotten_is_used_from_the_next_reply_on(
    pair: Pair, engine: LoadedEngine
) -> None:
    learned(pair, 1)
    use(engine)
    learned_head.revert(place_of(pair.target, pair.draft or Path()))
    use(engine)
    assert engine._loaded.learned is None
    learned(pair, 2)
    use(engine)
    forget()
    use(engine)
    assert engine._loaded.learned is None
    assert said(engine, QUESTIONS[0], WAYS[0])[1] > 0


def test_a_damaged_learned_head_gives_its_place_back_to_the_pairs_own(pair: Pair, engine: LoadedEngine) -> None:
    learned(pair, 1).write_bytes(b"GGUF, but not quite")
    use(engine)
    assert engine._loaded.learned is None
    assert said(engine, QUESTIONS[0], WAYS[0])[1] > 0


def test_replies_in_which_drafts_were_rejected_are_kept_and_forgotten(pair: Pair, engine: LoadedEngine) -> None:
    tokens = said(engine, QUESTIONS[0], WAYS[0])[0]
    engine.tend()
    place = place_of(pair.target, pair.draft or Path())
    (kept,) = Windows(place.windows, engine.facts.n_vocab).read()
    assert kept.tokens[kept.start :].tolist() == tokens
    text = "".join(engine.token_text(token) for token in tokens).encode()[:12]
    assert all(text not in path.read_bytes() for path in place.path.rglob("*") if path.is_file())
    forget()
    assert not root().exists()


def test_a_pair_that_does_not_learn_leaves_no_folder(head: Path) -> None:
    forget()
    engine = LoadedEngine(replace(DEMO, draft=head), Options(512, threads=1), learns=True)
    said(engine, QUESTIONS[0], WAYS[0])
    engine.tend()
    engine.close()
    assert not root().exists()
    assert engine.status.learning == ""


def test_a_pair_whose_draft_is_a_model_says_that_it_does_not_learn() -> None:
    engine = LoadedEngine(replace(DEMO, learn=True), Options(512, threads=1), learns=True)
    engine.close()
    assert "EAGLE-3 head" in engine.status.learning
    assert not root().exists()


def test_what_measures_keeps_nothing(pair: Pair) -> None:
    engine = LoadedEngine(pair, Options(512, fixed_k=3, drafters=("model",), threads=1))
    said(engine, QUESTIONS[0], WAYS[0])
    engine.tend()
    engine.close()
    assert Windows(place_of(pair.target, pair.draft or Path()).windows, engine.facts.n_vocab).read() == []


def test_a_target_that_changed_meanwhile_has_a_head_of_its_own_and_loses_nothing(
    pair: Pair, engine: LoadedEngine, tmp_path: Path
) -> None:
    learned(pair, 1)
    other = replace(pair, target=Path(shutil.copy(pair.target, tmp_path / "target.gguf")))
    later = LoadedEngine(other, Options(512, threads=1))
    assert later._loaded.learned is None
    later.close()
    assert learned_head.current(place_of(pair.target, pair.draft or Path())) is not None


@pytest.mark.skipif(sys.platform == "win32", reason="reads the registry elsewhere")
def test_learned_heads_are_listed_gone_back_from_and_wiped_on_the_command_line(
    head: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Path(os.environ["XDG_CONFIG_HOME"]) / "slipstream" / "models.toml"
    registry.parent.mkdir(parents=True, exist_ok=True)
    registry.write_text(f"[pairs.mine]\ntarget = {str(DEMO.target)!r}\ndraft = {str(head)!r}\nlearn = true\n")
    try:
        pair = load_registry()["mine"]
        place_of(pair.target, head).make({"target": str(pair.target), "head": str(head)})
        learned(pair, 1)
        listed = json.loads(slipstream("models", "learned", "mine", "--json").stdout)["learned"]
        assert [(each["current"], each["measured"]["after"]) for each in listed] == [(1, BETTER.after)]
        assert "20.0% of draft tokens right before, 30.0% after" in slipstream("models", "learned").stdout
        assert "at their next reply" in slipstream("models", "learned", "mine", "--revert").stdout
        assert learned_head.current(place_of(pair.target, head)) is None
        assert "The original head is used." in slipstream("models", "learned", "mine").stdout
        assert "Name the pair" in failing("models", "learned", "--revert")
        answer = "yes" if find_spec("torch") else "no: PyTorch is not installed"
        assert f"learns  {answer}" in slipstream("models", "info", "mine").stdout
        assert "trained on your replies" in slipstream("forget").stdout
        assert not root().exists()
    finally:
        registry.unlink()


def test_nothing_is_kept_of_a_reply_where_the_folder_went_with_past_replies(pair: Pair, engine: LoadedEngine) -> None:
    said(engine, QUESTIONS[0], WAYS[0])
    forget_replies()
    forget()
    engine.tend()
    place = Place(place_of(pair.target, pair.draft or Path()).path)
    assert Windows(place.windows, engine.facts.n_vocab).read() == []
