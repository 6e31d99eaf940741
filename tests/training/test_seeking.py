"""`--draft auto` without a known draft model: a search begins some time after a reply, and leaves nothing half done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from app.models import pair as command
from app.models import search_process, seeking
from app.models.seeking import Search, SeekingEngine, opener
from bench.instruments.concurrent_replies import Concurrent
from runtime.core.children import Child
from runtime.engine import Options, Sampling
from runtime.engine.paired import Trial, is_settled, remembered
from runtime.engine.pairing import Target
from runtime.loading.profile_cache import ProfileCache
from runtime.models.registry import load_registry
from tests.support import waiting
from tests.support.waiting import PATIENCE, wait_for

DEMO = load_registry()["demo"]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo pair as strangers, with a cache and a hub's cache of their own."""
    assert DEMO.draft is not None
    (tmp_path / "models").mkdir()
    for source, name in ((DEMO.target, "big.gguf"), (DEMO.draft, "small.gguf")):
        shutil.copy(source, tmp_path / "models" / name)
    monkeypatch.delenv(seeking.OPT_OUT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path / "models" / "big.gguf"


def child(code: str) -> Child:
    """A process that runs something else than a search."""
    return Child("timeit", "-n", "1", "-r", "1", code)


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """Instead of searches, processes that do nothing."""
    begun: list[Child] = []

    def start(target: Path, tries_drafts: bool) -> Child:
        begun.append(child("import time; time.sleep(600)"))
        search_process.note(begun[-1].pid, target)
        return begun[-1]

    monkeypatch.setattr(seeking, "start", start)
    monkeypatch.setattr(seeking, "is_busy", lambda: False)  # by other tests
    yield begun
    for process in begun:
        process.end()


@pytest.mark.slow
def test_an_idle_server_searches_and_the_next_one_uses_the_result(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "IDLE", 0.05)
    monkeypatch.setattr(seeking, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(seeking, "is_busy", lambda: False)
    monkeypatch.setattr(waiting, "PATIENCE", 600.0)  # its priority is the lowest
    said: list[str] = []
    open_engine = opener("auto", say=said.append)
    with closing(open_engine(replace(DEMO, target=target, draft=None), Options(threads=1))) as engine:
        list(engine.reply("Hello", Sampling(temperature=0.0), 2))
        usual = command.usual_candidates(target)
        wait_for(lambda: is_settled(target, usual))
    assert len(said) == 1
    assert said[0].startswith("Tried for big.gguf in the background: 3 models as its draft.")
    assert "small.gguf" in (target.parents[1] / "cache" / "slipstream" / "pairing.log").read_text()
    with closing(open_engine(replace(DEMO, target=target, draft=None), Options(threads=1))) as engine:
        assert engine.pair.draft == remembered(target)
        list(engine.reply("Hello", Sampling(temperature=0.0), 2))
        assert engine._search is None or engine._search._new_models() == []


def test_a_search_that_is_killed_leaves_nothing_and_begins_anew(target: Path) -> None:
    said: list[str] = []
    search = Search(target, said.append)
    search.begin()
    process = search._process
    assert process is not None
    wait_for(lambda: psutil.Process(process.pid).nice() == 19)
    search.stop()
    assert process.returncode is not None
    assert remembered(target) is None
    assert not is_settled(target, command.usual_candidates(target))
    assert not list((target.parents[1] / "cache").rglob("*.json.*"))
    search.begin()
    assert search._process is not None
    assert len(said) == 1
    search.stop()


def test_one_search_runs_at_a_time(target: Path, sleeping: list[Child]) -> None:
    for _ in range(2):
        Search(target, str).begin()
    assert len(sleeping) == 1


def test_a_number_of_a_process_that_was_given_again_is_no_search(target: Path, sleeping: list[Child]) -> None:
    search = Search(target, str)
    search_process.memo().write({"pid": os.getpid(), "began": 1.0})
    search.begin()
    assert len(sleeping) == 1


def test_a_search_that_an_earlier_program_left_gives_way_to_loading(target: Path, sleeping: list[Child]) -> None:
    Search(target, str).begin()
    assert sleeping[0].poll() is None
    SeekingEngine(replace(DEMO, target=target, draft=None), Options(threads=1), say=str).close()
    sleeping[0].wait(PATIENCE)
    assert search_process.running() is None


def test_what_was_tried_is_not_tried_again_until_another_model_is_here(target: Path, sleeping: list[Child]) -> None:
    Target(replace(DEMO, target=target)).keep({}, command.usual_candidates(target))
    for _ in range(2):  # by what was tried, then by what the folders were
        Search(target, str).begin()
        assert not sleeping
    shutil.copy(target, target.with_name("other.gguf"))
    Search(target, str).begin()
    assert len(sleeping) == 1


def test_nobody_is_told_of_a_search_among_no_models(
    target: Path, monkeypatch: pytest.MonkeyPatch, sleeping: list[Child]
) -> None:
    monkeypatch.setattr(command, "load_registry", dict)
    (target.with_name("small.gguf")).unlink()
    said: list[str] = []
    Search(target, said.append).begin()
    assert (said, sleeping) == ([], [])


def test_a_model_that_is_gone_is_no_failure(target: Path) -> None:
    said: list[str] = []
    search = Search(target, said.append)
    target.unlink()
    search.begin()
    assert (search._process, said) == (None, [])
    search.stop()


def test_the_search_waits_for_a_reply_and_gives_way_to_the_next(
    target: Path, sleeping: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeking, "IDLE", 0.05)
    engine = SeekingEngine(replace(DEMO, target=target, draft=None), Options(threads=1), say=str)
    try:
        assert not sleeping
        list(engine.reply("Hello", Sampling(temperature=0.0), 2))
        wait_for(lambda: sleeping)
        chunks = engine.reply("Hello", Sampling(temperature=0.0), 2)
        assert sleeping[0].returncode is not None
        list(chunks)
    finally:
        engine.close()


def test_it_gives_way_to_a_servers_replies_as_well(
    target: Path, sleeping: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added and read by steps; the search waits for the last one."""
    monkeypatch.setattr(seeking, "IDLE", 0.05)
    engine = SeekingEngine(replace(DEMO, target=target, draft=None), Options(threads=1), say=str)
    try:
        for n_searches in (1, 2):
            together = Concurrent(engine)
            told = [together.add(("Hello", Sampling(temperature=0.0), None), n) for n in (2, 9)]
            assert all(each.poll() is not None for each in sleeping)
            together.until(lambda told=told: told[0].is_over)  # type: ignore[misc]
            together.leave_all()
            wait_for(lambda n=n_searches: len(sleeping) == n)  # type: ignore[misc]
    finally:
        engine.close()


def test_a_search_ends_with_the_engine(target: Path, sleeping: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "IDLE", 0.05)
    engine = SeekingEngine(replace(DEMO, target=target, draft=None), Options(threads=1), say=str)
    list(engine.reply("Hello", Sampling(temperature=0.0), 2))
    wait_for(lambda: sleeping)
    engine.close()
    assert sleeping[0].returncode is not None
    assert len(sleeping) == 1


def test_only_auto_searches_for_drafts_and_only_where_one_may_be_used(target: Path) -> None:
    alone = replace(DEMO, target=target, draft=None)
    for draft, pair, options in (
        ("off", alone, Options(threads=1)),
        ("auto", alone, Options(threads=1, drafters=("ngram",))),
        ("auto", DEMO, Options(threads=1)),
    ):
        engine = opener(draft)(pair, options)
        assert (engine._search is None) is (draft == "off")
        assert engine._search is None or engine._search._new_models() == []
        engine.close()


def test_another_model_of_a_chat_takes_what_was_found_for_it(target: Path) -> None:
    kept = Target(replace(DEMO, target=target)).keep(
        {target.with_name("small.gguf"): Trial(1.4, 0.5, 1.0, 99, per_pass=1.5)}
    )
    engine = opener("auto")(replace(DEMO, target=target, draft=None), Options(threads=1))
    assert engine.pair.draft == kept
    engine.close()


def test_a_search_can_be_ruled_out(target: Path, monkeypatch: pytest.MonkeyPatch, sleeping: list[Child]) -> None:
    monkeypatch.setenv(seeking.OPT_OUT, "1")
    Search(target, str).begin()
    assert not sleeping
    assert not ProfileCache("x").path.parent.exists()
