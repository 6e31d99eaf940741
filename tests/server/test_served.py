"""The server's engine has several replies made at once, and nobody is kept waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.server.errors import ApiError
from app.server.scheduled_task import ScheduledTask
from app.server.served import ServedEngine
from app.server.task import CompletionTask
from runtime.core.limits import Limits
from runtime.engine import Chunk, Message, Sampling
from runtime.engine.engine import Ask
from tests.conftest import OpenEngine
from tests.support.serving import shared_process
from tests.support.stepped import Breaking, Letters
from tests.support.waiting import PATIENCE, wait_for

QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?")
GREEDY = Sampling(temperature=0.0)


TWO = Limits(max_running=2, max_waiting=8)


@contextmanager
def served_by(engine: Any, on_failed: Callable[[Exception], None] = lambda error: None) -> Iterator[ServedEngine]:
    loaded = threading.Event()
    served = ServedEngine(lambda on_progress: engine, lambda engine: loaded.set(), on_failed)
    served.start()
    assert loaded.wait(PATIENCE)
    yield served
    served.stop()
    served.join()


def counted(prompt: str, n: int, *, is_short: bool = False) -> ScheduledTask:
    return ScheduledTask(CompletionTask(Ask(prompt, GREEDY, n, is_short=is_short)))


async def heard(job: ScheduledTask) -> str:
    return "".join([chunk.text async for some in job.chunks() for chunk in some])


def test_chunks_that_have_come_together_are_read_together_and_what_failed_after_them() -> None:
    async def run() -> None:
        job = counted("a", 6)
        for event in (None, Chunk("x", (1,)), Chunk("y", (2,)), ApiError(500, "lost"), ApiError(499, "later")):
            job.emit(event)
        chunks = job.chunks()
        assert "".join(chunk.text for chunk in await anext(chunks)) == "xy"
        with pytest.raises(ApiError, match="lost"):
            await anext(chunks)

    asyncio.run(run())


def test_as_many_run_at_once_as_may_and_a_short_one_besides() -> None:
    engine = Letters(TWO)

    async def run() -> None:
        with served_by(engine) as served:
            jobs = [counted("a", 6), counted("b", 6), counted("c", 2), counted("s", 3, is_short=True)]
            for job in jobs:
                served.submit(job)
            await asyncio.to_thread(wait_for, lambda: len(engine.begun) == 3 and engine.status.n_waiting == 1)
            engine.go_on.set()
            assert await asyncio.gather(*map(heard, jobs)) == ["x" * 6, "x" * 6, "xx", "xxx"]

    asyncio.run(run())
    assert sorted(engine.begun[:3]) == ["a", "b", "s"]
    assert engine.order.index("c") >= engine.order.index("s") + 6  # two long ones at a time


def test_an_engine_that_breaks_leaves_nobody_waiting() -> None:
    engine, failures = Breaking(TWO), list[Exception]()

    async def run() -> None:
        with served_by(engine, on_failed=failures.append) as served:
            jobs = [counted("a", 5), counted("b", 5)]
            for job in jobs:
                served.submit(job)
            engine.go_on.set()
            for job in jobs:
                with pytest.raises(ApiError, match="shutting down"):
                    await asyncio.wait_for(heard(job), PATIENCE)
            with pytest.raises(ApiError, match="shutting down"):
                served.submit(counted("c", 5))

    asyncio.run(run())
    assert [type(failure) for failure in failures] == [MemoryError]


def test_who_leaves_has_no_further_turn_and_a_reader_who_does_not_read_holds_up_nobody() -> None:
    engine = Letters(TWO)

    async def run() -> None:
        with served_by(engine) as served:
            gone, unread, other = counted("gone", 10**6), counted("unread", 10**6), counted("other", 50)
            served.submit(gone)
            served.submit(unread)
            engine.go_on.set()
            await gone.started()
            gone.cancel()
            served.submit(other)
            assert await heard(other) == "x" * 50
            unread.cancel()

    asyncio.run(run())
    first = engine.order.index("other")
    assert "gone" not in engine.order[first:]


def test_the_engine_alternates_behind_the_server(open_demo: OpenEngine) -> None:
    prompts = [[Message("user", question)] for question in QUESTIONS]

    async def run() -> list[str]:
        jobs = [ScheduledTask(CompletionTask(Ask(prompt, GREEDY, 60))) for prompt in prompts]
        for job in jobs:
            served.submit(job)
        return await asyncio.gather(*map(heard, jobs))

    plain = open_demo(threads=1, drafters=())
    alone = ["".join(chunk.text for chunk in plain.reply(prompt, GREEDY, 60)) for prompt in prompts]
    with served_by(shared_process(slots=3, limits=TWO)) as served:
        assert asyncio.run(run()) == alone
