"""Who ends a process ends all that it began, however it ended: real commands, and the table of processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.instruments.shapes import FILE_TYPES, K_QUANTS, requantize, write_random
from tests.support.cli import QUESTION, SLIPSTREAM
from tests.support.family import Family
from tests.support.quick import others_slow
from tests.support.waiting import PATIENCE, wait_for

RUN = ("run", QUESTION, "-m", "{model}", "--threads", "1")


@pytest.fixture(scope="module")
def k_quants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in K-quants, whose layout is tried, with another that might draft for it."""
    folder = tmp_path_factory.mktemp("models")
    source = write_random(folder / "source.gguf", K_QUANTS)
    return requantize(source, FILE_TYPES["Q4_K_M"], folder / "model.gguf")


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    here = Family(tmp_path)
    yield here
    here.end()


COMMANDS = {
    "pair": (("models", "pair", "{model}"), "runtime.loading.layout", 2),
    "bench": (("bench", "{model}", "--quick", "--drafters", "none", "--runs", "10000"), "app.cli", 2),
    "doctor": (("doctor", "{model}"), "app.cli", 2),
    "run": (RUN, "runtime.engine.process.host", 1),
    "serve": (("serve", "{model}", "--port", "0"), "runtime.engine.process.host", 1),
}


@pytest.mark.parametrize("name", others_slow(COMMANDS, ("pair",)))
def test_nothing_is_left_of_a_command_that_was_killed(name: str, k_quants: Path, family: Family) -> None:
    args, module, n = COMMANDS[name]
    process = family.begin([*SLIPSTREAM, *(each.format(model=k_quants) for each in args)])
    wait_for(lambda: family.runs(module, n))
    process.kill()
    process.communicate()
    wait_for(lambda: not family.alive())


@pytest.mark.slow
def test_a_training_that_is_killed_leaves_nothing(family: Family) -> None:
    pytest.importorskip("torch")
    process = family.begin([*SLIPSTREAM, "models", "distill", "demo", "--kind", "head"])
    wait_for(lambda: family.runs("app.cli", 2))
    process.kill()
    process.communicate()
    wait_for(lambda: not family.alive())


@pytest.mark.slow
def test_a_loop_of_commands_begins_no_search(k_quants: Path, family: Family) -> None:
    command = [*SLIPSTREAM, *(each.format(model=k_quants) for each in RUN), "--seed", "3", "--max-tokens", "4", "--raw"]
    for _ in range(3):
        process = family.begin(command)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors) == (0, b"")
        assert family.alive() == []


SEARCHING = """
import sys, time
from pathlib import Path
from app.models import search_process, seeking
seeking.is_busy = lambda: False  # whatever else runs here
seeking.IDLE = seeking.CHECK_SECONDS = 0.05
from app.models.seeking import SeekingEngine
from runtime.engine import Options, Sampling
from runtime.models.registry import Pair
engine = SeekingEngine(Pair("x", Path(sys.argv[1])), Options(threads=1), say=str)
list(engine.reply("Hello", Sampling(seed=3), 4))
time.sleep(600)
"""


@pytest.fixture
def searching(k_quants: Path, family: Family) -> subprocess.Popen[bytes]:
    """A long-lived program beside whose idle engine a search runs, with both of its trials of a layout."""
    process = family.begin([sys.executable, "-c", SEARCHING, str(k_quants)])
    wait_for(lambda: family.runs("runtime.loading.layout"))
    return process


def test_a_search_ends_with_its_program(searching: subprocess.Popen[bytes], family: Family) -> None:
    assert family.runs("app.models.search_process")
    searching.kill()
    searching.communicate()
    wait_for(lambda: not family.alive())


def test_a_search_ends_when_another_program_replies(
    searching: subprocess.Popen[bytes], k_quants: Path, family: Family
) -> None:
    (search,) = (
        each for each in psutil.Process(searching.pid).children() if "app.models.search_process" in each.cmdline()
    )
    assert search.nice() == 19
    command = [
        *SLIPSTREAM,
        *(each.format(model=k_quants) for each in RUN),
        "--draft",
        "off",
        "--max-tokens",
        "4",
        "--raw",
    ]
    assert family.begin(command).wait(120) == 0
    assert not family.runs("app.models.search_process")
    wait_for(lambda: not family.runs("runtime.loading.layout"))
    assert searching.poll() is None


@pytest.mark.slow
def test_one_search_runs_at_a_time(searching: subprocess.Popen[bytes], k_quants: Path, family: Family) -> None:
    """Two that are asked for wait for each other; one in the background gives way to them."""
    asked = [family.begin([*SLIPSTREAM, "models", "pair", str(k_quants)]) for _ in range(2)]
    said = [process.communicate(timeout=300)[1] for process in asked]
    assert [process.returncode for process in asked] == [0, 0]
    assert sum(b"Another search is running" in each for each in said) == 1
    assert searching.poll() is None


def test_ignored_signals_stay_ignored(k_quants: Path, family: Family) -> None:
    """As with `nohup`."""
    command = [*SLIPSTREAM, *(each.format(model=k_quants) for each in RUN), "--max-tokens", "200", "--raw"]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = family.begin(command)
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: family.runs("runtime.engine.process.host"))
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 0
