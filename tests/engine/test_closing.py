"""The models' process is closed: it may store prompts as long as it goes on with that, within a bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.backends.stored import prefix_store
from runtime.core import spawning
from runtime.engine import Message, Options, Sampling
from runtime.engine.process import model_process
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.support.mishaps import PART, PART_SECONDS, SLOW_DISK

N_PARTS = 50  # that it would write until it is killed, if nothing was heard of it
SLOW = replace(load_registry()["demo"], name=SLOW_DISK)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EngineProcess:
    """One that has read a prompt and stores it slowly, where nothing is stored yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(spawning, "HOST", "tests.support.mishaps")
    found = EngineProcess(SLOW, Options(threads=1, prompt_bytes=10**9, drafters=()))
    list(found.reply([Message("user", "x = 1\n" * 120)], Sampling(temperature=0), 1))
    return found


def test_it_is_waited_for_while_prompts_are_stored(engine: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_process, "LAST", N_PARTS * PART_SECONDS)
    engine.close()
    (stored,) = prefix_store.folder().glob("*.state")
    assert stored.stat().st_size > 2 * N_PARTS * PART
    stored.unlink()


def test_it_is_killed_when_that_takes_too_long_and_leaves_nothing_half_stored(
    engine: EngineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_process, "CLOSE", 0.1)
    process = engine.kept.current
    engine.close()
    assert not process.is_alive
    assert list(prefix_store.folder().glob("*.state")) == []
