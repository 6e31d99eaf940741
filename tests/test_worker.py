"""The server's worker makes several replies in turns: short ones go first, and nobody is kept waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.server.errors import ApiError
from app.server.scheduled_task import ScheduledTask
from app.server.task import CompletionTask
from app.server.worker import MAX_LEAD, Worker
from bench.instruments.clock import Clock
from bench.instruments.facts import facts
from runtime.engine import Chunk, Message, Options, Sampling
from runtime.engine.loaded import LoadedEngine
from runtime.models.registry import load_registry
from tests.conftest import OpenEngine
from tests.support.waiting import PATIENCE

QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?")
GREEDY = Sampling(temperature=0.0)


@contextmanager
def worker_with(
    engine: LoadedEngine, max_active: int = 2, on_failed: Callable[[Exception], None] = lambda error: None
) -> Iterator[Worker]:
    loaded = threading.Event()
    worker = Worker(lambda on_progress: engine, 8, loaded.set, on_failed, max_active)
    worker.start()
    assert loaded.wait(PATIENCE)
    yield worker
    worker.stop()
    worker.join()


class Counting:
    """An engine whose replies are letters; a step takes `seconds` by `clock`."""

    turn_seconds = 0.0
    facts = facts()
    n_held = 1
    memory_level = "OK"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.clock = seconds, Clock()
        self.order: list[str] = []
        self.n_waiting: list[int] = []
        self.go_on = threading.Event()

    def reply(
        self, prompt: str, sampling: Sampling, max_tokens: int, stops: Any, cancel: Any, *args: Any, **more: Any
    ) -> Iterator[Chunk]:
        for _ in range(max_tokens):
            self.go_on.wait(PATIENCE)
            if cancel():
                break
            self.order.append(prompt)
            self.clock.advance(self.seconds)
            yield Chunk("x", (1,))
        yield Chunk("", finish_reason="cancelled" if cancel() else "stop")

    def let_in(self) -> None:
        pass

    def share(self, n_waiting: int) -> None:
        self.n_waiting.append(n_waiting)

    def tend(self) -> None:
        pass

    def close(self) -> None:
        pass


def counted(prompt: str, n: int, *, is_short: bool = False) -> ScheduledTask:
    return ScheduledTask(CompletionTask(lambda engine: prompt, GREEDY, n, is_short=is_short))


async def heard(job: ScheduledTask) -> str:
    return "".join([chunk.text async for some in job.chunks() for chunk in some])


def order_of(engine: Counting, jobs: Callable[[], list[ScheduledTask]]) -> str:
    """What is done for jobs that come at once; they are made on the event loop."""

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            submitted = jobs()
            for job in submitted:
                worker.submit(job)
            engine.go_on.set()
            await asyncio.gather(*map(heard, submitted))

    asyncio.run(run())
    return "".join(engine.order)


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


def test_long_replies_alternate_step_by_step_and_a_short_one_goes_before_them() -> None:
    engine = Counting()
    order = order_of(
        engine, lambda: [counted("a", 6), counted("b", 6), counted("c", 2), counted("s", 3, is_short=True)]
    )
    assert "sss" in order[:5]  # a step may have been under way when it came
    rest = order.replace("sss", "")
    assert "ababab" in rest or "bababa" in rest
    assert rest.index("c") > rest.index("b")  # two at a time
    assert max(engine.n_waiting) == 2


class Sharing(Counting):
    """One whose replies share passes; it notes when each begins, in capitals."""

    facts = facts(shares_passes=True)

    def reply(self, prompt: str, *args: Any, **more: Any) -> Iterator[Chunk]:
        self.order.append(prompt.upper())
        return super().reply(prompt, *args, **more)


def test_where_passes_are_shared_who_comes_begins_before_others_go_on() -> None:
    """So that its prompt is read with theirs; a chat and a completion have their steps by turns."""
    order = order_of(Sharing(), lambda: [counted("a", 6), counted("b", 6), counted("s", 6, is_short=True)])
    assert sorted(each for each in order[:4] if each.isupper()) == ["A", "B", "S"]  # a step may have been under way
    rest = "".join(each for each in order if each.islower())
    assert all(set(rest[i : i + 3]) == {"a", "b", "s"} for i in range(2, 14, 3))


def test_completions_without_end_do_not_starve_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Counting(seconds=0.05)
    monkeypatch.setattr("app.server.worker.perf_counter", engine.clock)

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            chat, short = counted("c", 10), counted("s", 10**6, is_short=True)
            worker.submit(short)
            worker.submit(chat)
            engine.go_on.set()
            assert await heard(chat) == "x" * 10
            short.cancel()

    asyncio.run(run())
    first = engine.order.index("c")
    assert first * engine.seconds <= MAX_LEAD + 3 * engine.seconds
    assert engine.order[first : first + 24].count("c") == 10  # from then on they take turns


def test_what_short_ones_had_before_other_chats_is_not_held_against_them() -> None:
    engine = Counting()

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            worker._lead = 9.0
            engine.go_on.set()
            alone = counted("a", 1, is_short=True)
            worker.submit(alone)
            assert await heard(alone) == "x"
            engine.go_on.clear()
            chat, short = counted("c", 9), counted("s", 3, is_short=True)
            worker.submit(chat)
            worker.submit(short)
            engine.go_on.set()
            await asyncio.gather(heard(chat), heard(short))

    asyncio.run(run())
    assert "sss" in "".join(engine.order)[:5]  # a step of the chat may have been under way


class Breaking(Counting):
    """An engine that breaks between two steps."""

    def share(self, n_waiting: int) -> None:
        self.go_on.wait(PATIENCE)
        raise MemoryError


def test_an_engine_that_breaks_leaves_nobody_waiting() -> None:
    engine, failures = Breaking(), list[Exception]()

    async def run() -> None:
        with worker_with(engine, on_failed=failures.append) as worker:  # type: ignore[arg-type]
            jobs = [counted("a", 5), counted("b", 5)]
            for job in jobs:
                worker.submit(job)
            engine.go_on.set()
            for job in jobs:
                with pytest.raises(ApiError, match="shutting down"):
                    await asyncio.wait_for(heard(job), PATIENCE)
            with pytest.raises(ApiError, match="shutting down"):
                worker.submit(counted("c", 5))

    asyncio.run(run())
    assert [type(failure) for failure in failures] == [MemoryError]


def test_who_leaves_has_no_further_turn_and_a_reader_who_does_not_read_holds_up_nobody() -> None:
    engine = Counting()

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            gone, unread, other = counted("gone", 10**6), counted("unread", 10**6), counted("other", 50)
            worker.submit(gone)
            worker.submit(unread)
            engine.go_on.set()
            await gone.started()
            gone.cancel()
            worker.submit(other)
            assert await heard(other) == "x" * 50
            unread.cancel()

    asyncio.run(run())
    first = engine.order.index("other")
    assert "gone" not in engine.order[first:]


def test_the_engine_alternates_behind_the_worker(open_demo: OpenEngine) -> None:
    prompts = [[Message("user", question)] for question in QUESTIONS]

    async def run() -> list[str]:
        jobs = [ScheduledTask(CompletionTask(lambda engine, prompt=prompt: prompt, GREEDY, 60)) for prompt in prompts]  # type: ignore[misc]
        for job in jobs:
            worker.submit(job)
        return await asyncio.gather(*map(heard, jobs))

    plain = open_demo(threads=1, drafters=())
    alone = ["".join(chunk.text for chunk in plain.reply(prompt, GREEDY, 60)) for prompt in prompts]
    opened = LoadedEngine(load_registry()["demo"], Options(threads=1, slots=3))
    with worker_with(opened) as worker:
        assert asyncio.run(run()) == alone
