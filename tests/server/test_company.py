"""Several clients at once on a server whose replies share passes, with the models in their own process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx2
import pytest

from runtime.engine import Options
from runtime.engine.process.client import EngineProcess
from runtime.engine.trace import TraceFile, read
from runtime.models.registry import load_registry
from tests.server.test_monitoring import counts
from tests.support.serving import Running, running
from tests.support.waiting import PATIENCE, wait_for

QUESTIONS = ("What does os.path.join do?", "How do I read a file line by line?", "What is a list comprehension?")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceFile]:
    with closing(TraceFile(tmp_path_factory.mktemp("trace") / "trace.jsonl")) as file:
        yield file


@pytest.fixture(scope="module")
def here(trace: TraceFile) -> Iterator[Running]:
    pair, options = load_registry()["demo"], Options(threads=1, slots=4)
    with running(lambda on_progress: EngineProcess(pair, options, on_progress, trace=trace)) as found:
        yield found


def body(question: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60} | more


def asked(here: Running, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to requests that come at once."""

    async def ask_all() -> list[Any]:
        async with httpx2.AsyncClient(base_url=here.url, timeout=PATIENCE) as client:
            return await asyncio.gather(*(client.post("/v1/chat/completions", json=each) for each in bodies))

    return [reply.json() for reply in asyncio.run(ask_all())]


def texts(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["choices"][0]["message"]["content"] for answer in answers]


BODIES = [body(question, ignore_eos=True) for question in QUESTIONS] + [
    body(question, temperature=0.8, seed=3) for question in QUESTIONS
]


def test_clients_at_once_hear_what_each_hears_alone_and_more_than_there_is_room_for_wait(here: Running) -> None:
    alone = texts([asked(here, [each])[0] for each in BODIES])
    before = counts(here.client())
    answers = asked(here, BODIES)  # twice as many as are made at once
    after = counts(here.client())
    assert texts(answers) == alone
    assert max(answer["timings"]["replies_per_pass"] for answer in answers) > 1.2
    n_decode = after["llamacpp:n_decode_total"] - before["llamacpp:n_decode_total"]
    steps = {name: after[name] - before.get(name, 0) for name in after if name.startswith("slipstream_target_passes")}
    assert 0 < n_decode < sum(steps.values())
    assert after["llamacpp:n_busy_slots_per_decode"] > 1


@pytest.mark.parametrize("n_heard", [0, 1, 5])
def test_who_leaves_changes_nothing_for_the_others(here: Running, n_heard: int) -> None:
    """Before a word has come, at the first, and in the middle."""
    expected = texts(asked(here, [BODIES[0]]))

    async def leave(client: httpx2.AsyncClient) -> None:
        whole = body("Tell me of files. " * 20, stream=True, max_tokens=400)
        async with client.stream("POST", "/v1/chat/completions", json=whole) as reply:
            lines = reply.aiter_lines()
            for _ in range(n_heard):
                await anext(lines)

    async def ask() -> str:
        async with httpx2.AsyncClient(base_url=here.url, timeout=PATIENCE) as client:
            answer, *_ = await asyncio.gather(
                client.post("/v1/chat/completions", json=BODIES[0]), leave(client), leave(client)
            )
            return str(answer.json()["choices"][0]["message"]["content"])

    assert [asyncio.run(ask())] == expected


def test_who_reads_nothing_holds_nobody_up(here: Running) -> None:
    with here.client().stream("POST", "/v1/chat/completions", json=body("Tell me more.", stream=True, max_tokens=500)):
        assert texts(asked(here, [BODIES[0]])) == texts(asked(here, [BODIES[0]]))


def test_a_prompt_that_does_not_fit_is_one_clear_answer_and_the_others_notice_nothing(here: Running) -> None:
    expected = texts(asked(here, [BODIES[0]]))
    good, bad = asked(here, [BODIES[0], body("word " * 10_000)])
    assert texts([good]) == expected
    assert "context" in bad["error"]["message"]


def test_each_pass_of_replies_made_at_once_is_a_line_of_its_own(here: Running, trace: TraceFile) -> None:
    with here.client() as client:  # of a test before, a reply that its client left may still be made
        wait_for(lambda: counts(client)["llamacpp:requests_processing"] == 0)
    n_before = trace.path.read_text(encoding="utf8").count("\n")
    answers = asked(here, BODIES)
    lines = read(trace.path.read_text(encoding="utf8").splitlines()[n_before:], "it")
    replies = [[each for each in lines if each.sequence == number] for number in {each.sequence for each in lines}]
    for reply in replies:
        assert [each.step for each in reply] == list(range(1, len(reply) + 1))
    n_tokens = [sum(each.made.n_tokens for each in reply) for reply in replies]
    assert sorted(n_tokens) == sorted(answer["usage"]["completion_tokens"] for answer in answers)
    assert max(each.made.n_together for each in lines) > 1
