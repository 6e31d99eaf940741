"""Several replies in turns: each says what it says alone, nothing is read twice, and nobody is kept waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.server.ask import Ask
from app.server.errors import ApiError
from app.server.job import Job
from app.server.worker import Worker
from runtime.backends.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.core.draft import Draft
from runtime.engine import Chunk, Engine, Grammar, Ids, Message, Options, Sampling
from runtime.models.registry import load_registry
from runtime.speculative.control.controller import Controller
from runtime.speculative.control.costs import PassCosts
from tests.support.serving import PATIENCE

N_CTX = 256
QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?", "What is a list comprehension?")
ALL_DRAFTERS = ("grammar", "prediction", "ngram", "suffix", "model")
GREEDY, SEEDED = Sampling(temperature=0.0), Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)


def tokens(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, n).astype(np.int32)


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[LlamaModel]:
    opened = LlamaModel(tiny)
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=["chain", "tree", "early"])
def backends(model: LlamaModel, request: pytest.FixtureRequest) -> Iterator[tuple[LlamaBackend, LlamaBackend]]:
    """One that keeps three conversations, one that starts afresh each time."""
    kinds = {
        "chain": lambda: LlamaBackend(model, N_CTX, n_rows=9, n_batch=64),
        "tree": lambda: LlamaBackend(model, N_CTX, n_rows=9, n_batch=64, can_branch=True),
        "early": lambda: EarlyExitBackend(model, N_CTX, n_rows=9, n_batch=64),
    }
    pair = kinds[request.param](), LlamaBackend(model, N_CTX, n_rows=9, n_batch=256)
    for backend in pair:
        backend.set_threads(1, 1)
    if isinstance(pair[0], EarlyExitBackend):
        pair[0].reuses = True
    pair[0].set_slots(3)
    yield pair
    for backend in pair:
        backend.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12), st.integers(0, 6)), min_size=2, max_size=10))
def test_conversations_in_turns_have_the_logits_that_each_has_alone(
    backends: tuple[LlamaBackend, LlamaBackend], asked: list[tuple[int, int, int]]
) -> None:
    """Four that grow in turns where three are kept, with drafts of which a part comes true."""
    memo, fresh = backends
    length = dict.fromkeys(range(4), 90)
    for seed, n_new, k in asked:
        whole = tokens(seed, N_CTX)
        n = length[seed] = min(length[seed] + n_new, N_CTX - 9)
        guessed = [*whole[n : n + k // 2].tolist(), *tokens(9, k - k // 2).tolist()]
        branching = memo.can_branch and k > 1 and guessed[-1] not in guessed[:-1]
        parents = (*range(-1, k - 2), -1) if branching else None
        if isinstance(memo, EarlyExitBackend) and k:
            for i in range(k):
                memo.early.forward(np.array([*whole[:n], *guessed[:i]], dtype=np.int32))
        got = memo.forward(whole[:n], Draft(tuple(guessed), parents)).copy()
        fresh.forward(tokens(77, 1))
        assert np.array_equal(fresh.forward(whole[:n])[0], got[0])
        for i in range(k - 1 if branching else k):
            assert np.array_equal(
                fresh.forward(np.array([*whole[:n], *guessed[: i + 1]], dtype=np.int32))[0], got[i + 1]
            )


def test_a_kept_conversation_is_not_read_again(model: LlamaModel) -> None:
    backend = LlamaBackend(model, N_CTX, n_rows=9)
    backend.set_slots(2)
    first, second, third = (tokens(seed, 200) for seed in (1, 2, 3))
    for context in (first, second, first, second):
        backend.forward(context)
    assert backend.n_decoded == 400 + 2  # of what was read before, the last token
    backend.forward(third)
    # The one that was not used for longest has gone
    assert (backend.n_cached(second), backend.n_cached(first)) == (199, 0)
    branch = np.concatenate([second[:100], third[:50]])
    backend.forward(branch)
    assert (backend.n_cached(second), backend.n_cached(branch)) == (199, 149)  # a branch leaves what it grew from
    backend.set_slots(1)
    assert (backend.n_cached(second), backend.n_cached(branch)) == (100, 149)
    backend.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    opened = Engine(load_registry()["demo"], Options(threads=1, drafters=ALL_DRAFTERS, fixed_k=3, slots=3))
    yield opened
    opened.close()


def ask(engine: Engine, question: str, sampling: Sampling, **more: Any) -> Iterator[Chunk]:
    return engine.reply([Message("user", question)], sampling, 60, pauses=True, **more)


def said(chunks: Iterator[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.tokens]


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_replies_in_turns_say_what_each_says_alone(engine: Engine, sampling: Sampling) -> None:
    more: list[dict[str, Any]] = [
        {"prediction": "os.path.join joins one or more"},
        {},
        {"grammar": Grammar("json_object")},
    ]
    alone = [said(ask(engine, question, sampling, **each)) for question, each in zip(QUESTIONS, more, strict=True)]
    replies = [ask(engine, question, sampling, **each) for question, each in zip(QUESTIONS, more, strict=True)]
    together: list[list[int]] = [[], [], []]
    for turn in range(400):
        if (chunk := next(replies[turn % 3], None)) is not None:
            together[turn % 3] += chunk.tokens
    assert together == alone
    assert min(map(len, alone)) > 1


def test_a_prompt_of_one_token_is_a_conversation_too(engine: Engine) -> None:
    first, other = engine.reply(Ids((5,)), GREEDY, 4, pauses=True), ask(engine, QUESTIONS[0], GREEDY)
    alone = said(engine.reply(Ids((5,)), GREEDY, 4))
    together = []
    for _ in range(8):
        together += next(first, Chunk("")).tokens
        next(other, None)
    assert together == alone


def test_changing_conversations_costs_no_reading(engine: Engine) -> None:
    replies = [ask(engine, 5 * question, GREEDY) for question in QUESTIONS]
    while not all(next(reply).tokens for reply in replies):
        pass
    backend = engine._loaded.backend
    before = backend.n_decoded
    chunks = [next(reply) for _ in range(4) for reply in replies]
    n_rows = sum(len(chunk.tokens) for chunk in chunks)
    # The last token and a draft of three for each, and nothing of what was said before
    assert backend.n_decoded - before <= 12 * 4 + n_rows


@contextmanager
def worker_with(
    engine: Engine, max_active: int = 2, on_failed: Callable[[Exception], None] = lambda error: None
) -> Iterator[Worker]:
    loaded = threading.Event()
    worker = Worker(lambda on_progress: engine, 8, loaded.set, on_failed, max_active)
    worker.start()
    assert loaded.wait(PATIENCE)
    yield worker
    worker.stop()
    worker.join()


class Counting:
    """An engine whose replies are numbers, by a clock of steps."""

    turn_seconds = 0.0
    n_held = 1
    memory_level = "OK"

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds  # of a step
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
            time.sleep(self.seconds)
            yield Chunk("x", (1,))
        yield Chunk("", finish_reason="cancelled" if cancel() else "stop")

    def share(self, n_waiting: int) -> None:
        self.n_waiting.append(n_waiting)

    def tend(self) -> None:
        pass

    def close(self) -> None:
        pass


def counted(prompt: str, n: int, *, is_short: bool = False) -> Job:
    return Job(Ask(lambda engine: prompt, GREEDY, n, is_short=is_short))


async def heard(job: Job) -> str:
    return "".join([chunk.text async for chunk in job.chunks()])


def test_long_replies_alternate_step_by_step_and_a_short_one_goes_before_them() -> None:
    engine = Counting()

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            jobs = [counted("a", 6), counted("b", 6), counted("c", 2), counted("s", 3, is_short=True)]
            for job in jobs:
                worker.submit(job)
            engine.go_on.set()
            await asyncio.gather(*map(heard, jobs))

    asyncio.run(run())
    order = "".join(engine.order)
    assert "sss" in order[:5]  # a step may have been under way when it came
    rest = order.replace("sss", "")
    assert "ababab" in rest or "bababa" in rest
    assert rest.index("c") > rest.index("b")  # two at a time
    assert max(engine.n_waiting) == 2


def test_completions_without_end_do_not_starve_a_chat() -> None:
    engine = Counting(0.05)

    async def run() -> None:
        with worker_with(engine) as worker:  # type: ignore[arg-type]
            chat, short = counted("c", 10), counted("s", 10**6, is_short=True)
            worker.submit(short)
            worker.submit(chat)
            engine.go_on.set()
            assert await heard(chat) == "x" * 10
            short.cancel()

    asyncio.run(run())


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
            await gone.accepted()
            gone.cancel()
            worker.submit(other)
            assert await heard(other) == "x" * 50
            unread.cancel()

    asyncio.run(run())
    first = engine.order.index("other")
    assert "gone" not in engine.order[first:]


def test_the_engine_alternates_behind_the_worker(engine: Engine) -> None:
    async def run() -> list[str]:
        jobs = [Job(Ask(lambda engine, q=q: [Message("user", q)], GREEDY, 60)) for q in QUESTIONS[:2]]  # type: ignore[misc]
        for job in jobs:
            worker.submit(job)
        return await asyncio.gather(*map(heard, jobs))

    alone = ["".join(chunk.text for chunk in ask(engine, question, GREEDY)) for question in QUESTIONS[:2]]
    opened = Engine(load_registry()["demo"], Options(threads=1, slots=3))
    with worker_with(opened) as worker:
        assert asyncio.run(run()) == alone


def test_with_others_waiting_less_is_drafted() -> None:
    costs = PassCosts()
    for width in range(1, 10):
        costs.set(width, 1 + 0.15 * (width - 1))
    lengths = []
    for n_waiting in (0, 1, 4):
        controller = Controller(costs, {"ngram": 1e-6}, max_k=8, model_free=["ngram"])
        controller.n_waiting = n_waiting
        controller.begin(10)
        lengths.append(controller.length("ngram", [0.6] * 8)[0])
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]
