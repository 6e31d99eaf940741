"""The search for a draft model waits while it would disturb somebody, and is seen by others."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.models import draft_search, search_process, seeking
from app.models.draft_search import Search
from app.models.seeking import opener
from runtime.engine import Options, Sampling
from tests.support.waiting import wait_for
from tests.test_seeking import DEMO, sleeping, target

__all__ = ["sleeping", "target"]


def test_it_waits_while_it_would_disturb_somebody_and_gives_way_to_who_comes_back(
    target: Path, sleeping: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_search, "IDLE", 0.01)
    monkeypatch.setattr(draft_search, "CHECK_SECONDS", 0.01)
    is_there, looks = [True], list[bool]()
    search = Search(target, str, disturbs=lambda: looks.append(True) or is_there[0])
    search.wait()
    wait_for(lambda: len(looks) > 2)
    search.begin()  # as an engine that is closed does it
    assert not sleeping
    search.wait()
    is_there[0] = False
    wait_for(lambda: sleeping)
    is_there[0] = True
    wait_for(lambda: sleeping[0].poll() is not None)
    is_there[0] = False
    wait_for(lambda: len(sleeping) == 2)
    search.stop()
    assert search._timer is None
    assert sleeping[1].poll() is not None


def test_a_model_that_is_opened_for_a_comparison_searches_nothing(
    target: Path, sleeping: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_search, "IDLE", 0.01)
    monkeypatch.setattr(draft_search, "CHECK_SECONDS", 0.01)
    looks = list[bool]()
    monkeypatch.setattr(seeking, "always", lambda: looks.append(True) or True)
    open_engine = opener("auto", say=str)
    engine = open_engine(replace(DEMO, target=target, draft=None), Options(threads=1), seeks=False)
    list(engine.reply("Hello", Sampling(temperature=0.0), 2))
    wait_for(lambda: looks)
    engine.close()
    assert not sleeping


def test_others_see_for_which_model_a_search_runs(target: Path, sleeping: list[subprocess.Popen[bytes]]) -> None:
    search = Search(target, str)
    search.begin()
    assert search_process.is_searched(target)
    assert not search_process.is_searched(target.with_name("small.gguf"))
    search.stop()
    assert not search_process.is_searched(target)
