"""macOS and Windows, as far as they can be played on Linux: tests.support.other_system. Neither was run."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from app.cli import choices, streams
from app.server import sockets
from app.tui import terminal
from bench.instruments.servers import free_port
from runtime.core import children, cores
from runtime.loading import pass_timing
from tests.support.cli import QUESTION, SLIPSTREAM
from tests.support.family import Family
from tests.support.other_system import PLAYED, environment
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems are played on Linux alone")
IMPORT_ALL = """
import sys
from importlib import import_module
from pkgutil import walk_packages
assert import_module("runtime.core.children").sys.platform == "{system}"
for room in ("runtime", "app"):
    for module in walk_packages(import_module(room).__path__, room + "."):
        try:
            if not module.name.endswith("__main__"):
                import_module(module.name)
        except ModuleNotFoundError as error:  # an extra that is not installed
            assert error.name in ("torch", "gguf", "safetensors", "tokenizers"), (module.name, error)
"""
DIALS = """
import json
from pathlib import Path
from runtime.core import cores
from runtime.loading.neighbours import Neighbours
from runtime.loading.profile_cache import ProfileCache
from runtime.core.memory import MemoryReader, own_bytes
from app.models.search_process import alone
import os
kept = ProfileCache("x", Path("{folder}"))
kept.write({{"a": 1}})
kept.write({{"a": 2}})
with alone():
    held = MemoryReader(root=Path("{folder}"))().pools[0].total
own, busy = own_bytes(os.getpid()), Neighbours().wait()
print(json.dumps([cores.n_cores(), cores.n_fast(), held, own, busy, kept.read()["a"]]))
"""
systems = pytest.mark.parametrize("system", PLAYED)


@pytest.fixture
def played(tmp_path: Path, system: str) -> dict[str, str]:
    """Environment variables with which a process plays the system."""
    return environment(system, tmp_path)


def done(env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)


@systems
def test_every_module_can_be_imported(system: str, played: dict[str, str]) -> None:
    ended = done(played, sys.executable, "-c", IMPORT_ALL.format(system=system))
    assert (ended.returncode, ended.stderr) == (0, "")


@systems
def test_cores_memory_and_locks_are_known(system: str, played: dict[str, str], tmp_path: Path) -> None:
    ended = done(played, sys.executable, "-c", DIALS.format(folder=tmp_path))
    assert ended.stderr == ""
    n_cores, n_fast, total, own, busy, kept = json.loads(ended.stdout)
    assert n_cores >= n_fast >= 1
    assert min(total, own) > 2**20
    assert busy >= 0
    assert kept == 2


@systems
def test_the_bundled_pair_says_the_same(system: str, played: dict[str, str]) -> None:
    """With the models in a process of their own, and each other process that an answer needs."""
    command = [*SLIPSTREAM, "run", QUESTION, "-m", "demo", "--seed", "3", "--threads", "1"]
    there, here = done(played, *command), done(dict(played, TESTS_PLAY_SYSTEM=""), *command)
    assert (there.returncode, there.stderr) == (0, "")
    assert there.stdout == here.stdout
    assert "separator" in there.stdout


@systems
def test_a_server_answers_and_ends(system: str, played: dict[str, str], family: Family) -> None:
    port = free_port()
    family.environment |= played
    server = family.begin([*SLIPSTREAM, "serve", "demo", "--port", str(port), "--threads", "1", "--quiet"])
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        wait_for(lambda: answers(client))
        reply = client.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 4}).json()
    assert reply["usage"]["completion_tokens"] > 0
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=60)
    wait_for(lambda: not family.alive())


def answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx2.HTTPError:
        return False


@systems
def test_the_models_process_ends_with_its_parent(system: str, played: dict[str, str], family: Family) -> None:
    family.environment |= played
    command = family.begin([*SLIPSTREAM, "serve", "demo", "--port", "0", "--threads", "1"])
    wait_for(lambda: family.runs("runtime.engine.process.host"))
    command.kill()
    command.communicate()
    wait_for(lambda: not family.alive())


@pytest.mark.parametrize("system", ["win32"])
def test_what_windows_lacks_is_refused_in_a_sentence(system: str, played: dict[str, str], tmp_path: Path) -> None:
    ended = done(played, *SLIPSTREAM, "serve", "demo", "--socket", str(tmp_path / "s"))
    assert ended.returncode == 1
    assert ended.stderr == "slipstream: Python on this system has no Unix sockets. Use --port instead of --socket.\n"


@pytest.fixture
def family(tmp_path: Path) -> object:
    here = Family(tmp_path)
    yield here
    here.end()


def test_on_windows_a_child_is_the_python_that_works_and_not_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_base_executable", "/python/python.exe", raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert children.interpreter() == (
        "/python/python.exe",
        {"PYTHONUTF8": "1", "__PYVENV_LAUNCHER__": sys.executable},
    )
    monkeypatch.setattr(sys, "_base_executable", sys.executable)
    assert children.interpreter() == (sys.executable, {"PYTHONUTF8": "1"})


def test_on_windows_no_other_program_shares_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with socket.socket() as sock:
        sockets.claim(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_an_editors_path_keeps_its_backslashes_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    command = r'"C:\Program Files\edit.exe" --wait'
    monkeypatch.setattr(sys, "platform", "win32")
    assert terminal.words_of(command) == [r"C:\Program Files\edit.exe", "--wait"]
    monkeypatch.setattr(sys, "platform", "linux")
    assert terminal.words_of("'my editor' -w") == ["my editor", "-w"]


def test_a_word_with_a_backslash_may_be_a_file_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a\\b").touch()
    assert not choices.is_model("a\\b")
    monkeypatch.setattr(choices.os, "sep", "\\")
    assert choices.is_model("a\\b")


@pytest.mark.parametrize(("platform", "text"), [("win32", "█\n"), ("linux", "?\n")])
def test_a_character_that_the_encoding_lacks_ends_nothing(
    platform: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Windows writes to a file is in an encoding of the region, unless it is told otherwise."""
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    path = tmp_path / "output"
    with path.open("w", encoding="cp1252") as file:
        monkeypatch.setattr(sys, "stdout", file)
        streams.take_any_text()
        print("█")
    assert path.read_text(encoding="utf8") == text


def write_capacities(folder: Path, *values: object) -> Path:
    for core, value in enumerate(values):
        (folder / f"cpu{core}").mkdir()
        (folder / f"cpu{core}" / "cpu_capacity").write_text(f"{value}\n")
    return folder


@pytest.mark.parametrize(
    ("capacities", "n"),
    [((), 4), ((1024, 1024, 446, 446), 2), ((1024, 800, 446, 446), 2), ((512,) * 4, 4), (("?", 0, 9, 3), 1)],
)
def test_slow_cores_beside_fast_ones_do_not_count(
    capacities: tuple[object, ...], n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "usable", lambda: [0, 1, 2, 3])
    assert cores.n_fast(write_capacities(tmp_path, *capacities)) == n


@pytest.mark.parametrize(("fast", "counts"), [(0, [1, 4, 8]), (4, [1, 2, 4, 8])])
def test_threads_on_an_apple_are_tried_without_its_slow_cores(
    fast: int, counts: list[int], monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., None]
) -> None:
    monkeypatch.setattr(cores, "usable", lambda: [*range(8)])
    monkeypatch.setattr(pass_timing.psutil, "cpu_count", lambda logical: 8)
    kernel(**{"hw.perflevel0.physicalcpu": fast})
    assert pass_timing.thread_counts() == counts
    assert pass_timing.usual_threads() == (fast or 8)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Plays macOS's `sysctlbyname` with values by name; 0 is none."""

    def play(**values: int) -> None:
        def read(name: bytes, place: object, *_: object) -> int:
            value = values.get(name.decode(), 0)
            place._obj.value = value  # type: ignore[attr-defined]
            return 0 if value else -1

        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(cores.ctypes, "CDLL", lambda name: SimpleNamespace(sysctlbyname=read))

    return play
