"""The server with its models in a process of their own: a loss is a pause for every client, and every stop stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from app.server.command import return_memory
from bench.instruments.processes import elsewhere
from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.models.registry import load_registry
from tests.support.serving import Running, running

DEMO = load_registry()["demo"]
ASKED = {"prompt": "def f(x):", "max_tokens": 60, "temperature": 0}
ENDLESS = {"prompt": "def f(x):", "max_tokens": 100_000, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    options = Options(threads=1, slots=4)
    with running(lambda on_progress: EngineProcess(DEMO, options, on_progress)) as found:
        yield found


def hit(here: Running) -> None:
    """Ends the process that has the models."""
    with suppress(ProcessLookupError):  # it was hit before
        os.kill(here.server.served.engine.kept.current._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]


def said(here: Running, asked: dict[str, object]) -> str:
    answer = here.client().post("/v1/completions", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["text"])


def test_every_client_gets_its_text_though_the_models_are_lost(here: Running) -> None:
    asked = [ASKED | {"temperature": 0.8, "seed": seed} for seed in range(3)]
    alone = [said(here, each) for each in asked]
    found = ["", "", ""]

    def ask(i: int) -> None:
        found[i] = said(here, asked[i])

    clients = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
    for client in clients:
        client.start()
    for _ in range(2):
        time.sleep(0.1)
        hit(here)
    for client in clients:
        client.join()
    assert found == alone


def test_a_stream_goes_on_where_it_was(here: Running) -> None:
    whole = said(here, ASKED)
    text, n = "", 0
    with here.client().stream("POST", "/v1/completions", json=ASKED | {"stream": True}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                text, n = text + httpx2.Response(200, text=line[6:]).json()["choices"][0]["text"], n + 1
                if n == 3:
                    hit(here)
    assert text == whole


def test_one_that_is_lost_between_two_requests_is_not_missed(here: Running) -> None:
    before = said(here, ASKED)
    hit(here)
    assert here.client().get("/health").status_code == 200
    assert said(here, ASKED) == before


def test_the_server_ends_while_a_reply_is_made(tmp_path: Path) -> None:
    options = Options(threads=1)
    with running(lambda on_progress: EngineProcess(DEMO, options, on_progress)) as found:
        client, answers = found.client(), list[int]()
        asking = threading.Thread(
            target=lambda: answers.append(client.post("/v1/completions", json=ENDLESS).status_code)
        )
        asking.start()
        time.sleep(0.3)
        found.server.should_exit = True
        pid = found.server.served.engine.kept.current._process.pid  # type: ignore[attr-defined]
        asking.join()
    assert answers == [503]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def mib_kept() -> float:
    """What four large blocks leave behind when something small came after them."""
    return_memory()
    bytearray(20 * 2**20)  # by itself, glibc keeps blocks of this size from now on
    before = psutil.Process().memory_info().rss
    blocks = [bytearray(20 * 2**20) for _ in range(4)]
    last = bytearray(100_000)
    blocks.clear()
    assert len(last) == 100_000
    return (psutil.Process().memory_info().rss - before) / 2**20


@pytest.mark.skipif(not hasattr(os, "confstr") or "CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="of glibc")
def test_the_memory_of_large_bodies_is_not_kept() -> None:
    assert elsewhere(mib_kept) < 10
