"""A prompt that was read once is not read again by another engine, and the text is the same."""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.instruments.architectures.families import TEXT
from bench.instruments.architectures.writer import write_family
from runtime.backends.stored import prefix_store
from runtime.conversation.prompt import Ids
from runtime.engine import Options, Sampling, prefixes, stored_states
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.engine.stored_states import Worth
from runtime.models.registry import Pair, load_registry
from tests.support.quick import FAMILIES, others_slow

PROMPT = " ".join(f"Line {i}: the ferry left {i} minutes late and nobody minded." for i in range(12))
MORE = f"{PROMPT} Then it rained."
HOW = Options(threads=1, n_ctx=1024, drafters=("ngram",), prompt_bytes=10**9)
SAMPLINGS = Sampling(temperature=0, seed=1), Sampling(temperature=0.9, seed=5)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Everything is worth storing and taking, and nothing is stored yet."""
    place = tmp_path_factory.mktemp("prompts")
    monkeypatch.setattr(prefix_store, "folder", lambda: place)
    monkeypatch.setattr(stored_states, "THRESHOLDS", Worth(seconds=0.0, gain=0.0))


@pytest.fixture
def demo() -> Pair:
    return load_registry()["demo"]


def stored() -> list[Path]:
    return list(prefix_store.folder().glob("*.state"))


def asked(engine: LoadedEngine, prompt: str, sampling: Sampling, n: int = 16) -> tuple[str, Stats]:
    *chunks, last = engine.reply(prompt, sampling, n)
    assert last.stats is not None
    return "".join(chunk.text for chunk in (*chunks, last)), last.stats


def reply(engine: LoadedEngine, ids: list[int], sampling: Sampling) -> tuple[list[int], int]:
    """Return the tokens of a reply, and how many of its prompt's were cached."""
    *chunks, last = engine.reply(Ids(ids), sampling, 16)
    assert last.stats is not None
    return [token for chunk in (*chunks, last) for token in chunk.tokens], last.stats.cached_n


@pytest.mark.parametrize("family", others_slow(sorted(TEXT), FAMILIES))
def test_another_engine_goes_on_where_one_had_read_with_the_same_text(family: str, tmp_path: Path) -> None:
    pair = Pair(family, write_family(family, tmp_path))
    ids = np.random.default_rng(3).integers(4, 250, 300).tolist()

    def fresh(ids: list[int], sampling: Sampling) -> list[int]:
        with closing(LoadedEngine(pair, replace(HOW, drafters=(), prompt_bytes=0))) as engine:
            return reply(engine, ids, sampling)[0]

    first = fresh(ids, SAMPLINGS[0])
    longer = [*ids, *first, *ids[:20]]
    expected = [fresh(longer, sampling) for sampling in SAMPLINGS]
    with closing(LoadedEngine(pair, HOW)) as engine:
        assert reply(engine, ids, SAMPLINGS[0]) == (first, 0)
    for sampling, text in zip(SAMPLINGS, expected, strict=True):
        with closing(LoadedEngine(pair, HOW)) as engine:
            found, n_cached = reply(engine, longer, sampling)
            assert found == text
            is_exact = engine.facts.exactness.is_exact
            assert (n_cached >= len(ids)) if is_exact else (len(ids) // 2 <= n_cached <= len(ids))


@pytest.mark.parametrize("slots", [1, 3])
def test_a_draft_model_drafts_at_once_where_another_one_had_read(
    demo: Pair, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = Options(threads=1, n_ctx=1024, slots=slots, drafters=("model",), fixed_k=3, prompt_bytes=10**9)

    def at_once(read: Callable[[], object]) -> Future[object]:
        done = Future[object]()
        done.set_result(read())
        return done

    def read_by_draft(engine: LoadedEngine, prompt: str) -> tuple[str, int]:
        """Return the text of a reply, and how many tokens the draft model decoded."""
        assert engine._loaded.draft is not None
        backend: Any = engine._loaded.draft.backend
        before, never = backend.n_decoded, tuple((token, -math.inf) for token in engine.end_tokens)
        text = asked(engine, prompt, replace(SAMPLINGS[0], logit_bias=never))[0]
        return text, backend.n_decoded - before

    monkeypatch.setattr(prefixes, "in_thread", at_once)
    with closing(LoadedEngine(demo, replace(how, prompt_bytes=0))) as engine:
        expected, n_whole = read_by_draft(engine, MORE)
    with closing(LoadedEngine(demo, how)) as engine:
        asked(engine, PROMPT, SAMPLINGS[1])
    with closing(LoadedEngine(demo, how)) as engine:
        said, n_read = read_by_draft(engine, MORE)
        assert said == expected
        assert n_read < n_whole - 50  # how far it reads beside decoding depends on time


def test_a_short_prompt_leaves_nothing_on_disk(demo: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_states, "THRESHOLDS", Worth())
    with closing(LoadedEngine(demo, HOW)) as engine:
        asked(engine, "What is a list?", SAMPLINGS[0])
        assert not engine.prompts.keep()
    assert stored() == []


def test_nothing_is_stored_where_it_is_not_asked_for(demo: Pair) -> None:
    with closing(LoadedEngine(demo, Options(threads=1, n_ctx=1024))) as engine:
        asked(engine, PROMPT, SAMPLINGS[0])
        assert not engine.prompts.keep()
    assert stored() == []


def test_what_several_conversations_begin_with_is_read_once(demo: Pair) -> None:
    how = Options(threads=1, n_ctx=1024, slots=3, prompt_bytes=10**9)
    with closing(LoadedEngine(demo, how)) as engine:
        asked(engine, PROMPT, SAMPLINGS[0])
    with closing(LoadedEngine(demo, how)) as engine:
        for i in range(6):
            stats = asked(engine, f"{PROMPT} Question {i}: why?", SAMPLINGS[0])[1]
            assert stats.prompt_n - stats.cached_n < 64


def test_a_state_of_a_larger_context_does_not_disturb_a_smaller_one(demo: Pair) -> None:
    with closing(LoadedEngine(demo, HOW)) as engine:
        asked(engine, PROMPT, SAMPLINGS[0])
    with closing(LoadedEngine(demo, Options(threads=1, n_ctx=128, prompt_bytes=10**9))) as engine:
        assert asked(engine, PROMPT[:200], SAMPLINGS[0])[0]


def test_a_damaged_state_is_read_as_if_it_were_not_there(demo: Pair) -> None:
    with closing(LoadedEngine(demo, HOW)) as engine:
        expected = asked(engine, PROMPT, SAMPLINGS[0])[0]
    for path in stored():
        path.write_bytes(path.read_bytes()[:-5])
    with closing(LoadedEngine(demo, HOW)) as engine:
        text, stats = asked(engine, PROMPT, SAMPLINGS[0])
    assert (text, stats.cached_n) == (expected, 0)


def test_a_state_with_a_right_checksum_and_a_wrong_inside_is_removed(demo: Pair) -> None:
    with closing(LoadedEngine(demo, HOW)) as engine:
        expected = asked(engine, MORE, SAMPLINGS[0])[0]
    prefix_store.forget()
    with closing(LoadedEngine(demo, HOW)) as engine:
        asked(engine, PROMPT, SAMPLINGS[0])
    (path,) = stored()
    path.write_bytes(b"x" * path.stat().st_size)
    (index,) = prefix_store.folder().glob("*.sqlite")
    with closing(sqlite3.connect(index)) as db:
        db.execute("UPDATE states SET crc = ?", (zlib.crc32(path.read_bytes()),))
        db.commit()
    with closing(LoadedEngine(demo, HOW)) as engine:
        assert asked(engine, MORE, SAMPLINGS[0])[0] == expected
        assert stored() == []
