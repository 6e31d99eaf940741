"""Who is answered first, who is sent away, and what one failure means for the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from app.server.errors import ApiError
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import CompletionTask
from runtime.core.limits import Limits
from runtime.engine import Sampling
from runtime.engine.engine import Ask
from tests.conftest import OpenEngine
from tests.support.serving import Running, endless_request, is_idle, running, shared
from tests.support.stepped import Letters
from tests.support.waiting import PATIENCE, wait_for

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def here() -> Iterator[Running]:
    with running(shared(drafters=(), limits=Limits(3, 2))) as found:
        yield found


@pytest.fixture(scope="module")
def endless(open_demo: OpenEngine) -> dict[str, Any]:
    return endless_request(open_demo(threads=1)) | {"n_predict": -1, "stream": True}


def test_a_full_line_sends_clients_away_until_there_is_room(here: Running, endless: dict[str, Any]) -> None:
    def ask() -> None:
        with (
            httpx2.Client(base_url=here.url, timeout=PATIENCE) as client,
            client.stream("POST", "/completion", json=endless) as reply,
        ):
            lines = reply.iter_lines()  # held, because the connection ends with it
            next(lines, None)
            go_on.wait(PATIENCE)

    go_on, served = threading.Event(), here.server.served
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: served.is_answering and served.n_waiting == 2)
    refused = here.client().post("/completion", json={"prompt": "x"})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert here.client().get("/health").status_code == 200
    go_on.set()
    for thread in threads:
        thread.join()
    wait_for(lambda: is_idle(here))
    assert here.client().post("/completion", json={"prompt": "x", "n_predict": 1}).status_code == 200


def job(prompt: str, *, is_short: bool = False) -> ScheduledTask:
    return ScheduledTask(CompletionTask(Ask(prompt, GREEDY, is_short=is_short)))


@pytest.fixture
def echo() -> Iterator[tuple[ServedEngine, Letters]]:
    engine, loaded = Letters(Limits(1, 3), holds_one=True), threading.Event()
    served = ServedEngine(lambda on_progress: engine, lambda engine: loaded.set(), lambda error: None)  # type: ignore[arg-type, return-value]
    served.start()
    assert loaded.wait(PATIENCE)
    yield served, engine
    engine.go_on.set()
    served.stop()
    served.join()


def test_short_completions_go_before_chats_that_wait_and_nobody_who_left_is_answered(
    echo: tuple[ServedEngine, Letters],
) -> None:
    served, engine = echo

    async def ask() -> None:
        jobs = [job("first"), job("chat"), job("left"), job("edit", is_short=True)]
        for n, each in enumerate(jobs):
            served.submit(each)
            await asyncio.to_thread(wait_for, lambda n=n: engine.begun and engine.status.n_waiting == n)  # type: ignore[misc]
        served.submit(too_many := job("too many"))
        with pytest.raises(ApiError, match=r"3 waiting\)\. Try again in 1 s") as refused:
            await asyncio.wait_for(too_many.started(), 10)
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        jobs[2].cancel()
        await asyncio.to_thread(wait_for, lambda: engine.status.n_waiting == 2)
        engine.go_on.set()
        assert "".join([chunk.text async for some in jobs[1].chunks() for chunk in some]) == "x"

    asyncio.run(ask())
    assert engine.begun == ["first", "edit", "chat"]


def test_a_reply_that_fails_is_told_and_the_next_one_is_made(echo: tuple[ServedEngine, Letters]) -> None:
    served, engine = echo
    engine.go_on.set()

    async def ask() -> None:
        bad, good = job("bad"), job("good")
        served.submit(bad)
        served.submit(good)
        with pytest.raises(ApiError, match="Correct it"):
            await bad.started()
        assert [chunk.text async for some in good.chunks() for chunk in some] == ["x", ""]

    asyncio.run(ask())
