"""The server from loading to its end: who is answered first, who is sent away, what is left behind."""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from app.cli.main import main
from app.server.errors import ApiError
from app.server.scheduled_task import ScheduledTask
from app.server.sockets import AddressError, Addresses, listening
from app.server.task import CompletionTask
from app.server.worker import Worker
from runtime.core.errors import ModelError
from runtime.engine import Chunk, Engine, Options, Sampling
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.serving import Running, running
from tests.support.waiting import PATIENCE, wait_for

SERVE = [sys.executable, "-m", "app.cli", "serve"]
GREEDY = Sampling(temperature=0.0)


def open_plain(on_progress: Any) -> Engine:
    return Engine(load_registry()["demo"], Options(threads=1, drafters=()), on_progress)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(open_plain, max_waiting=2) as found:
        yield found


@pytest.fixture(scope="module")
def endless(open_demo: OpenEngine) -> dict[str, Any]:
    """A request whose reply goes on until the context is full."""
    engine = open_demo(threads=1)
    ends = [[token, False] for token in range(engine.vocab.n_vocab) if engine.is_end(token)]
    return {"prompt": "import", "n_predict": -1, "logit_bias": ends, "stream": True, "temperature": 0}


def counted(here: Running, reason: str) -> int:
    return here.server.worker.totals.replies[reason]


def is_idle(here: Running) -> bool:
    return not here.server.worker.is_answering and not here.server.worker.n_waiting


def test_a_client_that_vanishes_stops_its_reply(here: Running, endless: dict[str, Any]) -> None:
    before, said = counted(here, "cancelled"), here.server.worker.totals.predicted_n
    with here.client().stream("POST", "/completion", json=endless) as reply:
        next(reply.iter_lines())
    wait_for(lambda: is_idle(here))
    assert counted(here, "cancelled") == before + 1
    assert here.server.worker.totals.predicted_n - said < 1000


def test_a_client_that_vanishes_unanswered_stops_its_reply_too(here: Running, endless: dict[str, Any]) -> None:
    before = counted(here, "cancelled")
    body = json.dumps(endless | {"stream": False}).encode()
    with socket.create_connection(("127.0.0.1", here.port)) as sock:
        sock.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: here.server.worker.is_answering)
    wait_for(lambda: is_idle(here))
    assert counted(here, "cancelled") == before + 1


def test_a_client_that_vanishes_in_line_leaves_it(here: Running, endless: dict[str, Any]) -> None:
    body, state = json.dumps(endless).encode(), here.server.server_state
    with here.client().stream("POST", "/completion", json=endless) as reply:
        lines = reply.iter_lines()  # held, because the connection ends with it
        next(lines)
        with socket.create_connection(("127.0.0.1", here.port)) as sock:
            sock.sendall(
                b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            wait_for(lambda: here.server.worker.n_waiting == 1)
        wait_for(lambda: len(state.tasks) == 1)
        assert here.server.worker.is_answering
    wait_for(lambda: is_idle(here) and not state.tasks)


def test_a_full_line_sends_clients_away_until_there_is_room(here: Running, endless: dict[str, Any]) -> None:
    def ask() -> None:
        with (
            httpx2.Client(base_url=here.url, timeout=PATIENCE) as client,
            client.stream("POST", "/completion", json=endless) as reply,
        ):
            lines = reply.iter_lines()  # held, because the connection ends with it
            next(lines, None)
            go_on.wait(PATIENCE)

    go_on, worker = threading.Event(), here.server.worker
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: worker.is_answering and worker.n_waiting == 2)
    refused = here.client().post("/completion", json={"prompt": "x"})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert here.client().get("/health").status_code == 200
    go_on.set()
    for thread in threads:
        thread.join()
    wait_for(lambda: is_idle(here))
    assert here.client().post("/completion", json={"prompt": "x", "n_predict": 1}).status_code == 200


@pytest.mark.parametrize("n_kept", [1, 4])
def test_clients_that_drop_at_random_leave_nothing_behind(endless: dict[str, Any], n_kept: int) -> None:
    with running(
        lambda on_progress: Engine(load_registry()["demo"], Options(threads=1, drafters=(), slots=n_kept), on_progress)
    ) as here:
        drop_at_random(here, endless)
        assert here.client().post("/completion", json={"prompt": "x", "n_predict": 1}).status_code == 200
        assert here.server.worker.n_held <= n_kept


def drop_at_random(here: Running, endless: dict[str, Any]) -> None:
    body = json.dumps(endless).encode()
    request = b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    chance = random.Random(5)

    async def drop() -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(request[: chance.randrange(len(request) * 2)])
        await asyncio.sleep(chance.random() / 10)
        if chance.random() < 0.5:
            writer.transport.abort()
        writer.close()

    async def all_drop() -> None:
        await asyncio.gather(*(drop() for _ in range(100)))

    wait_for(lambda: not here.server.server_state.connections)
    n_files = psutil.Process().num_fds()
    asyncio.run(all_drop())
    wait_for(lambda: is_idle(here) and not here.server.server_state.connections and not here.server.server_state.tasks)
    wait_for(lambda: psutil.Process().num_fds() <= n_files)


def test_a_running_stream_ends_with_an_error_when_the_server_stops(endless: dict[str, Any], tmp_path: Path) -> None:
    with (
        running(open_plain, tmp_path / "s") as here,
        here.client().stream("POST", "/completion", json=endless) as reply,
    ):
        lines = (line for line in reply.iter_lines() if line)
        next(lines)
        here.server.should_exit = True
        *_, last = lines
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert not (tmp_path / "s").exists()


def test_while_it_loads_it_says_so() -> None:
    go_on = threading.Event()

    def never(on_progress: Any) -> Engine:
        go_on.wait(PATIENCE)
        raise KeyboardInterrupt

    with running(never, loads=False) as here:
        for reply in (here.client().get("/health"), here.client().post("/v1/chat/completions", json={})):
            assert reply.status_code == 503
            assert reply.json()["error"]["code"] == "loading"
            assert reply.headers["retry-after"]
        go_on.set()


class Echo:
    """An engine that repeats the prompt and notes it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.go_on = threading.Event()
        self.turn_seconds = math.inf  # one reply at a time

    def reply(self, prompt: str, *args: Any, **more: Any) -> Iterator[Chunk]:
        if prompt == "bad":
            raise ModelError("It is broken. Mend it.")
        return self.chunks(prompt)

    def chunks(self, prompt: str) -> Iterator[Chunk]:
        self.said.append(prompt)
        self.go_on.wait(PATIENCE)
        yield Chunk(prompt, finish_reason="stop")

    def share(self, n_waiting: int) -> None:
        pass

    def tend(self) -> None:
        pass

    def close(self) -> None:
        pass


def job(prompt: str, *, is_short: bool = False) -> ScheduledTask:
    return ScheduledTask(CompletionTask(lambda engine: prompt, GREEDY, is_short=is_short))


@pytest.fixture
def echo() -> Iterator[tuple[Worker, Echo]]:
    engine, loaded = Echo(), threading.Event()
    worker = Worker(lambda on_progress: engine, 3, loaded.set, lambda error: None)  # type: ignore[arg-type, return-value]
    worker.start()
    assert loaded.wait(PATIENCE)
    yield worker, engine
    engine.go_on.set()
    worker.stop()
    worker.join()


def test_short_completions_go_before_chats_that_wait_and_nobody_who_left_is_answered(echo: tuple[Worker, Echo]) -> None:
    worker, engine = echo

    async def ask() -> None:
        jobs = [job("first"), job("chat"), job("left"), job("edit", is_short=True)]
        worker.submit(jobs[0])
        await jobs[0].started()
        for later in jobs[1:]:
            worker.submit(later)
        with pytest.raises(ApiError, match="Try again"):
            worker.submit(job("too many"))
        jobs[2].cancel()
        engine.go_on.set()
        assert [chunk.text async for chunk in jobs[1].chunks()] == ["chat"]

    asyncio.run(ask())
    assert engine.said == ["first", "edit", "chat"]


def test_a_reply_that_fails_is_told_and_the_next_one_is_made(echo: tuple[Worker, Echo]) -> None:
    worker, engine = echo
    engine.go_on.set()

    async def ask() -> None:
        bad, good = job("bad"), job("good")
        worker.submit(bad)
        worker.submit(good)
        with pytest.raises(ApiError, match="Mend it"):
            await bad.started()
        assert [chunk.text async for chunk in good.chunks()] == ["good"]

    asyncio.run(ask())


def test_a_socket_is_for_its_owner_and_goes_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(Addresses("127.0.0.1", None, path)) as (sock,):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert sock.family == socket.AF_UNIX
        with pytest.raises(AddressError, match="already"), listening(Addresses("127.0.0.1", None, path)):
            pass
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_stale_socket_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(Addresses("127.0.0.1", None, path)), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    path.write_text("mine")
    with pytest.raises(AddressError, match="not a socket"), listening(Addresses("127.0.0.1", None, path)):
        pass
    assert path.read_text() == "mine"


def test_a_port_that_is_taken_is_named(here: Running) -> None:
    with pytest.raises(AddressError, match=f"Port {here.port}"), listening(Addresses("127.0.0.1", here.port, None)):
        pass


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--host", "0.0.0.0"], "SLIPSTREAM_API_KEY"),
        (["--host", "no.such.host.invalid", "--api-key", "k"], "--host"),
        (["/no/such.gguf", "--port", "0"], "There is no file"),
        (["nonsense"], "There is no pair"),
    ],
)
def test_what_cannot_be_served_is_one_line(
    args: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["slipstream", "serve", *args])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    args = ["--threads", "1", "--drafters", "none", "--socket", str(tmp_path / "s")]
    with subprocess.Popen([*SERVE, *args], stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        assert server.stderr.readline() == f"slipstream: answering at {tmp_path / 's'}\n"
        assert "MiB of memory, where" in server.stderr.readline()
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(tmp_path / "s"))) as client:
            assert client.get("http://anything/health").json()["status"] == "ok"
        server.send_signal(number)
        assert server.wait(PATIENCE) == 0
        assert server.stderr.read() == ""
    assert not (tmp_path / "s").exists()
