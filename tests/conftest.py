"""Engines on the bundled pair, opened once; small random GGUFs for what must go wrong; a clock that stands still."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from app.tui.session import EDITORS, SLOTS
from bench.instruments.shapes import TINY, write_random
from bench.instruments.toy import Clock
from runtime.core import spawning
from runtime.engine import Options
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.support.quick import LIST, listed, mark_slow
from tests.support.serving import Running, close_shared, open_plain, running

OpenEngine = Callable[..., LoadedEngine]
UNTIL = float(os.environ.get("TESTS_UNTIL", "inf"))  # seconds since the epoch: tests that would begin later are skipped


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what `-m` leaves out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items, listed(LIST.read_text(encoding="utf8")))


@pytest.hookimpl(tryfirst=True)  # before fixtures are made
def pytest_runtest_setup() -> None:
    if time.time() > UNTIL:
        pytest.skip("the time for these tests is over (TESTS_UNTIL)")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing that tests measure, keep or configure touches what is the user's."""
    for kind in ("CACHE", "DATA", "CONFIG", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(tmp_path_factory.mktemp(kind.lower()))
    os.environ["SLIPSTREAM_NO_SEARCH"] = "1"


@pytest.fixture(autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the chats, the models used last or the replies of another."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / "data" / uuid4().hex))


@pytest.fixture(scope="session", autouse=True)
def _shared_processes(_own_cache: None) -> Iterator[None]:
    """Engines in other processes end with the tests."""
    yield
    close_shared()


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
def demo_process() -> Iterator[EngineProcess]:
    """The bundled pair in a process of its own, as people have it: for several replies at the same time, on one thread,
    as tests run beside each other.
    """
    engine = EngineProcess(load_registry()["demo"], Options(threads=1, slots=SLOTS, limits=EDITORS))
    yield engine
    engine.close()


@pytest.fixture
def said() -> list[str]:
    """What an engine in another process told the person."""
    return []


@pytest.fixture
def unlucky(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    """An engine in another process that does as prompts tell it: tests.support.mishaps.

    With a fixed length it drafts on a busy machine too, where the measured cost of drafts may be too high.
    """
    monkeypatch.setattr(spawning, "HOST", "tests.support.mishaps")
    found = EngineProcess(load_registry()["demo"], Options(threads=1, fixed_k=3), say=said.append)
    yield found
    found.close()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of the demo's architecture with another vocabulary."""
    return write_random(tmp_path_factory.mktemp("models") / "tiny.gguf", TINY)


@pytest.fixture
def models_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`slipstream run` opens its models in this process, a second sooner than in one of their own."""
    monkeypatch.setattr("app.models.seeking.opener", lambda *_, **__: LoadedEngine)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What `time.perf_counter` says in this test."""
    stands = Clock()
    monkeypatch.setattr(time, "perf_counter", stands)
    return stands


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    """A server with the bundled model, without a draft."""
    with running(open_plain) as found:
        yield found


@pytest.fixture(scope="module")
def client(here: Running) -> httpx2.Client:
    """A client of that server."""
    return here.client()
