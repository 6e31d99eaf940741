"""Layers on other machines: what addresses are, what workers say, what fits where, what is refused; and with a build
that has RPC, that the text is the same, also when a worker is killed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli import choices, worker
from app.cli.doctor import in_words, rpc_in_words
from app.cli.doctor_advice import problems as problems_of
from app.cli.doctor_advice import with_rpc
from app.settings import read_settings
from bench.instruments.servers import delayed, free_port
from runtime.backends import rpc, workers
from runtime.backends.library import load_error
from runtime.backends.workers import WorkerError, ask
from runtime.core.errors import ModelError, NoMemoryError, RegistryError, SettingsError
from runtime.core.memory import MemoryReader
from runtime.core.pressure import USUAL, MemoryPool
from runtime.engine import Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.engine.process.client import EngineProcess
from runtime.engine.process.kept import Losses
from runtime.engine.process.model_process import ProcessLostError
from runtime.loading.fit import Headroom, PairSpec
from runtime.loading.footprint import ALL_LAYERS, ContextSpec
from runtime.loading.open_pair import reach
from runtime.loading.planning import fit_workers
from runtime.loading.worker import WorkerFacts, look_at_one
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import load_registry, parse_registry
from tests.support.far import BUILD, GIB, needs_rpc, real_worker, speaking, worker_of
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

QUESTION = [Message("user", "What does os.path.join do?")]
GREEDY = Sampling(temperature=0)


def rpc_of(text: str) -> tuple[str, ...]:
    table = f'[pairs.p]\ntarget = "t.gguf"\nrpc = {text}'
    return parse_registry([(Path("models.toml"), table.encode())])["p"].rpc


def test_workers_are_named_by_address() -> None:
    assert rpc_of('["10.0.0.1:7", " box ", "box:50052"]') == ("10.0.0.1:7", "box:50052")
    assert choices.parse_workers("a:1, b:2", ()) == ("a:1", "b:2")
    assert choices.parse_workers("off", ("a:1",)) == choices.parse_workers("none", ("a:1",)) == ()
    assert choices.parse_workers(None, ("a:1",)) == ("a:1",)
    with pytest.raises(typer.BadParameter, match="'a:b:c' is not the address of a worker"):
        choices.parse_workers("a:b:c", ())


@pytest.mark.parametrize(
    "text", ['["h:0"]', '["h:70000"]', '["h:"]', '[":1"]', '["::1"]', '["a b:1"]', '[""]', '["h:1²"]']
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RegistryError, match=r"models.toml: \[pairs.p\]: '.*' is not the address of a worker"):
        rpc_of(text)


def test_what_is_no_list_of_addresses_is_refused() -> None:
    with pytest.raises(RegistryError, match="'rpc' must be of type list, not str"):
        rpc_of('"h:1"')
    with pytest.raises(RegistryError, match="'rpc' must be a list of texts"):
        rpc_of("[1]")
    with pytest.raises(RegistryError, match=r"17 workers are named, but llama.cpp takes 16"):
        rpc_of(str([f"h:{i + 1}" for i in range(17)]))


def test_settings_name_workers_for_every_pair(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('rpc = ["box"]')
    assert read_settings(path).rpc == ("box:50052",)
    path.write_text("rpc = true")
    with pytest.raises(SettingsError, match="'rpc' must be of type list"):
        read_settings(path)


def test_a_worker_says_what_it_has() -> None:
    with speaking(worker_of()) as address:
        found = ask(address, measures=True)
    assert (found.version, found.devices[0].total, found.is_processor) == ((7, 0, 0), 8 * GIB, True)
    assert found.round_trip > 0
    assert found.bandwidth > 0


@pytest.mark.parametrize("device", [{"free": 7 * GIB}, {"alignment": 128}])
def test_what_may_be_a_gpu_is_taken_for_one(device: dict[str, int]) -> None:
    """Their kernels round by other rules, so a processor must be sure to be one."""
    with speaking(worker_of(**device)) as address:
        assert not ask(address).is_processor


def test_one_of_another_version_is_named() -> None:
    with speaking(worker_of((6, 1, 2))) as address, pytest.raises(WorkerError) as raised:
        ask(address)
    assert f"The worker {address} uses version 6.1.2" in str(raised.value)


def say(*parts: bytes) -> Any:
    def speak(line: socket.socket) -> None:
        for part in parts:
            line.sendall(part)

    return speak


@pytest.mark.parametrize(
    "parts", [(), (b"HTTP/1.1 400 Bad Request\r\n\r\n",), (b"\xff" * 64,), (b"\0" * 64,), (b"\x1c" + b"\0" * 7,)]
)
def test_one_that_answers_nonsense_is_named(parts: tuple[bytes, ...]) -> None:
    with speaking(say(*parts)) as address, pytest.raises(WorkerError) as raised:
        ask(address)
    assert f"The program at {address} is not a worker of version 7.0" in str(raised.value)


def test_one_that_answers_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ANSWER", 0.1)
    done = threading.Event()
    with speaking(lambda line: bool(done.wait(PATIENCE)) and None) as address:
        with pytest.raises(NoMemoryError, match=f"The worker {address} does not answer: it serves one"):
            ask(address)
        done.set()


def test_one_that_is_not_there_is_named() -> None:
    port = free_port()
    with pytest.raises(
        WorkerError, match=rf"127.0.0.1:{port} cannot be reached \(connection refused\). Start `slipstream"
    ):
        ask(f"127.0.0.1:{port}")
    with pytest.raises(WorkerError, match=r"The worker nowhere\.invalid:1 cannot be reached"):
        ask("nowhere.invalid:1")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been made devices, as the library has no RPC here."""
    found: list[str] = []
    monkeypatch.setattr(rpc, "require", lambda: None)
    monkeypatch.setattr(rpc, "register", lambda worker: found.append(worker.address))
    return found


def test_a_worker_that_was_lost_is_waited_for(registered: list[str]) -> None:
    with speaking(worker_of()) as there, ExitStack() as later:
        port, looks = free_port(), list[int]()
        back = f"127.0.0.1:{port}"

        def come_back() -> bool:
            looks.append(1)
            if len(looks) == 1:
                later.enter_context(speaking(worker_of(), port))
            return True

        assert reach((there, back), PATIENCE, come_back) == ((there, back), None)
    assert sorted(registered) == sorted([there, back])


def test_one_that_stays_away_is_done_without_or_is_the_end(registered: list[str]) -> None:
    away = f"127.0.0.1:{free_port()}"
    with speaking(worker_of()) as there:
        found, missing = reach((there, away), 0.01, lambda: True)
        assert (found, registered) == ((there,), [there])
        assert away in str(missing)
        with pytest.raises(WorkerError, match=away):
            reach((there, away), 0.0, lambda: True)
        with pytest.raises(KeyboardInterrupt):
            reach((there, away), PATIENCE, lambda: False)


@pytest.mark.skipif(bool(BUILD), reason="The library that is used here may have RPC.")
def test_a_library_without_rpc_says_so() -> None:
    for begin in (
        lambda: LoadedEngine(load_registry()["demo"], Options(rpc=("127.0.0.1:1",))),
        lambda: worker.worker("127.0.0.1", free_port(), None, False),
    ):
        with pytest.raises(SettingsError, match="compiled without RPC here"):
            begin()


def test_a_worker_cannot_listen_where_another_does() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SettingsError, match=r"cannot listen at 127\.0\.0\.1"),
    ):
        worker.address_of("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(SettingsError, match=r"cannot listen at nowhere\.invalid"):
        worker.address_of("nowhere.invalid", 1)


def pool(name: str, free: int) -> MemoryPool:
    return MemoryPool(f"the worker {name}", free, free, True, True)


@pytest.fixture
def spec() -> PairSpec:
    pair = load_registry()["demo"]
    target, draft = (ModelFacts(read_model_header(path)) for path in pair.files)
    return PairSpec(target, draft, ContextSpec(2048, n_rows=13, n_batch=512), floor=1024)


def test_the_target_goes_to_workers_and_the_draft_model_stays(spec: PairSpec) -> None:
    here = Headroom(GIB, 0, 0)
    plan = fit_workers(spec, [pool("a", GIB), pool("b", GIB)], here, USUAL, "t.gguf")
    assert (plan.with_draft, plan.n_gpu_layers, plan.is_less) == (True, ALL_LAYERS, False)
    assert plan.n_bytes < spec.needs(2048, True)
    poor = Headroom(GIB, GIB - 1, 0)
    less = fit_workers(spec, [pool("a", GIB)], poor, USUAL, "t.gguf")
    assert (less.with_draft, less.is_less) == (False, True)
    assert less.text.startswith("the draft model is left out for lack of memory here; everything fits")


def test_what_workers_have_no_room_for_stays_here_or_is_refused(spec: PairSpec) -> None:
    needs = spec.needs(1024, False)
    small = pool("a", needs // 2 + int(USUAL.recovery * USUAL.critical_device_bytes))
    plan = fit_workers(spec, [small], Headroom(GIB, 0, 0), USUAL, "t.gguf")
    assert 0 < plan.n_gpu_layers < spec.target.n_layers + 1
    assert "layers are on the workers" in plan.text
    with pytest.raises(NoMemoryError, match="layers that fit on the workers, but 1 MiB are free"):
        fit_workers(spec, [small], Headroom(2**20, 0, 0), USUAL, "t.gguf")


def test_workers_memory_is_named_by_their_address() -> None:
    reading = MemoryReader(lambda: [("CPU", "chip", 1, 2), ("RPC", "box:7", 3, 4)])()
    assert [each for each in reading.pools if each.is_far] == [MemoryPool("the worker box:7", 3, 4, True, True)]


def test_the_doctor_says_what_workers_are_and_how_to_have_them() -> None:
    found: dict[str, Any] = {"backends": ["CPU"], "versions": {"llama-cpp-python": "0.3.36"}, "workers": []}
    assert '"-DGGML_RPC=on"' in rpc_in_words(found)
    assert "-DGGML_RPC=on -DGGML_CUDA=on" in with_rpc(found | {"backends": ["CUDA", "CPU"]})
    assert "workers can take layers" in rpc_in_words(found | {"backends": ["RPC", "CPU"]})
    line = in_words(vars_of(WorkerFacts("box:7", "", 1, True, 10**9, 2 * 10**9, 0.0012, 1.25e8)))
    assert line == "box:7: its processor, 1.0 of 2.0 GB free, as it reports, 1.20 ms round trip, 125 MB/s to it"
    gone = look_at_one(f"127.0.0.1:{free_port()}")
    healthy: dict[str, Any] = {
        "gpu_hardware": [], "devices": [], "processor_flags": [], "cpu_features": [], "busy_processes": 0, "cores": 2,
        "is_exact": True, "memory_free_bytes": 2**34,
    }  # fmt: skip
    with_worker = found | healthy | {"workers": [vars_of(gone)]}
    assert problems_of(with_worker)[0]["problem"] == "Workers are named, but llama.cpp is compiled without RPC."
    mended = problems_of(with_worker | {"backends": ["RPC", "CPU"]})[0]
    assert mended["problem"].endswith("cannot be reached (connection refused).")
    assert mended["remedy"] == "Start `slipstream worker` there, and check the address."


def vars_of(facts: WorkerFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in WorkerFacts.__dataclass_fields__}


def test_the_relay_delays_each_direction_and_loses_nothing() -> None:
    data = bytes(range(256)) * 4096

    def echo(line: socket.socket) -> None:
        while part := line.recv(2**16):
            line.sendall(part)

    with (
        speaking(echo) as address,
        delayed(int(address.rpartition(":")[2]), 0.05) as port,
        socket.create_connection(("127.0.0.1", port)) as line,
    ):
        began = time.perf_counter()
        sender = threading.Thread(target=line.sendall, args=(data,))
        sender.start()
        found = b""
        while len(found) < len(data):
            found += line.recv(2**16)
            assert time.perf_counter() - began >= 0.1
        sender.join()
    assert found == data


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[subprocess.Popen[bytes]], ExitStack]]:
    """Two real workers, and processes of models that can use them."""
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", BUILD)
    with ExitStack() as stack:
        ports = [free_port(), free_port()]
        yield [f"127.0.0.1:{port}" for port in ports], [stack.enter_context(real_worker(port)) for port in ports], stack


@needs_rpc
def test_with_layers_on_two_workers_the_text_is_the_same_and_goes_on_without_one(
    two: tuple[list[str], list[subprocess.Popen[bytes]], ExitStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, processes, stack = two
    pair, said, options = load_registry()["demo"], list[str](), Options(rpc=tuple(addresses), fixed_k=3)
    with closing(EngineProcess(pair, Options(rpc=()))) as here:
        wanted = "".join(chunk.text for chunk in here.reply(QUESTION, GREEDY))
    engine = stack.enter_context(closing(EngineProcess(pair, options, say=said.append)))
    *chunks, last = engine.reply(QUESTION, GREEDY)
    assert "".join(chunk.text for chunk in chunks) == wanted
    assert last.stats is not None
    assert last.stats.draft_n > 0
    monkeypatch.setattr("runtime.engine.process.kept.WORKER_TIMEOUT", 1.0)
    text = ""
    for chunk in engine.reply(QUESTION, GREEDY):
        if text and processes[1].poll() is None:
            processes[1].kill()
            processes[1].wait()
        text += chunk.text
    assert text == wanted
    assert len(said) == 1
    assert f"The worker {addresses[1]} cannot be reached" in said[0]
    assert said[0].endswith("so the model is run without it.")


def test_a_worker_without_memory_is_named() -> None:
    """In the words of the library, as it was seen to say."""
    said = ["error loading model: unable to allocate RPC0[box:7] buffer", "failed to load model"]
    error = load_error(Path("m.gguf"), said)
    assert isinstance(error, NoMemoryError)
    assert str(error).startswith("The worker box:7 has no memory for its layers of m.gguf.")
    losses = Losses(Options(rpc=("box:7",), drafters=()))
    lost = ProcessLostError("it said: ggml-rpc.cpp:569: Remote RPC server crashed or returned malformed response")
    losses.note(lost, "load", "m.gguf")
    with pytest.raises(ModelError, match=r"A worker failed, .* see its messages there \(box:7\)"):
        losses.note(lost, "load", "m.gguf")


@needs_rpc
def test_a_worker_that_is_busy_or_gone_is_named_by_the_command(
    two: tuple[list[str], list[subprocess.Popen[bytes]], ExitStack],
) -> None:
    addresses, processes, _ = two
    processes[0].kill()
    processes[0].wait()
    command = [sys.executable, "-m", "app.cli", "run", "Hello", "--rpc", ",".join(addresses)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert ended.returncode == 1
    assert ended.stderr.strip().splitlines()[-1].startswith(f"slipstream: The worker {addresses[0]} cannot be reached")
