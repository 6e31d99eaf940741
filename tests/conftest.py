"""Engines on the bundled pair, opened once; small random GGUFs for what must go wrong; a clock that stands still."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.instruments.clock import Clock
from bench.instruments.shapes import TINY, write_random
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.support.quick import LIST, listed, mark_slow

OpenEngine = Callable[..., LoadedEngine]


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what `-m` leaves out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items, listed(LIST.read_text(encoding="utf8")))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that tests measure, keep or configure touches what is the user's."""
    for kind in ("CACHE", "DATA", "CONFIG", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(tmp_path_factory.mktemp(kind.lower()))
    os.environ["SLIPSTREAM_NO_SEARCH"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _heeds_interrupts() -> None:
    """Also where the tests run in a script's background, whose interrupts the shell ignores, and so would commands."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def open_demo() -> Iterator[OpenEngine]:
    """Opens the bundled pair with given options and one thread, as tests run beside each other; all is closed at the
    end.
    """
    engines: dict[Options, LoadedEngine] = {}

    def open_with(**options: object) -> LoadedEngine:
        key = Options(**{"threads": 1} | options)  # type: ignore[arg-type]
        if key not in engines:
            engines[key] = LoadedEngine(load_registry()["demo"], key)
        return engines[key]

    yield open_with
    for engine in engines.values():
        engine.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the demo's architecture with another vocabulary."""
    return write_random(tmp_path_factory.mktemp("models") / "tiny.gguf", TINY)


@pytest.fixture
def models_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`slipstream run` opens its models in this process, a second sooner than in one of their own."""
    monkeypatch.setattr("app.models.seeking.opener", lambda draft, trace: LoadedEngine)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What `time.perf_counter` says in this test."""
    stands = Clock()
    monkeypatch.setattr(time, "perf_counter", stands)
    return stands
