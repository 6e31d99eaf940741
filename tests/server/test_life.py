"""The server from loading to its end: what it says meanwhile, what it refuses to serve, what it leaves."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.cli.main import main
from app.models import seeking
from app.server import command
from app.server.command import EngineServer, ServerSettings
from app.server.sockets import Addresses
from runtime.engine import Engine
from runtime.models.registry import Pair
from tests.conftest import OpenEngine
from tests.support.cli import beside
from tests.support.serving import endless_request, open_plain, running
from tests.support.waiting import PATIENCE

SIGNALS = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.fixture(scope="module")
def endless(open_demo: OpenEngine) -> dict[str, Any]:
    return endless_request(open_demo(threads=1)) | {"n_predict": -1, "stream": True}


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
        assert here.client().post("/models/load", json={"model": "any"}).json() == {"success": True}
        here.client().get("/health")  # a turn of the event loop
        assert [each.served for each in here.server.models.models] == [here.server.served]  # it is not loaded again
        go_on.set()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--host", "0.0.0.0"], "SLIPSTREAM_API_KEY"),
        (["--host", "no.such.host.invalid", "--api-key", "k"], "--host"),
        (["/no/such.gguf", "--port", "0"], "There is no file"),
        (["nonsense"], "There is no model"),
        (["--temperature", "200"], "from 0 to 100"),
    ],
)
def test_what_cannot_be_served_is_one_line(args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", *args])
    assert end.value.code == 1
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(("args", "temperature"), [([], 0), (["--temperature", "0.3"], 0.3)])
def test_requests_that_name_no_temperature_have_the_servers(
    monkeypatch: pytest.MonkeyPatch, args: list[str], temperature: float
) -> None:
    pairs: list[Pair] = []
    monkeypatch.setattr(seeking, "opener", lambda *_, **__: lambda pair, *_: pairs.append(pair))
    monkeypatch.setattr(command, "serve", lambda open_engine, _: open_engine(None))
    with pytest.raises(SystemExit):
        main(["serve", "demo", *args])
    assert pairs[0].sampling_defaults["temperature"] == temperature


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    args = ["--threads", "1", "--drafters", "none", "--quiet", "--socket", str(tmp_path / "s")]
    with beside("serve", "demo", *args) as server:
        assert server.stderr is not None
        assert server.stderr.readline() == f"slipstream: answering at {tmp_path / 's'}\n"
        assert "MiB of memory, where" in server.stderr.readline()
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(tmp_path / "s"))) as client:
            assert client.get("http://anything/health").json()["status"] == "ok"
        server.send_signal(number)
        assert server.wait(PATIENCE) == -number  # as shells and supervisors expect it
        assert server.stderr.read() == ""
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_it_listens_ends_it_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(
        command, "EngineServer", lambda *_: os.kill(os.getpid(), number) or EngineServer(open_plain, *_[1:])
    )
    with pytest.raises(SystemExit) as end:
        command.serve(open_plain, ServerSettings(Addresses("127.0.0.1", None, tmp_path / "s")))
    assert end.value.code == 128 + number
    assert not (tmp_path / "s").exists()
