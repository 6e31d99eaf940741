"""The pipes to the models' process: neither side waits for ever, and no reply is given up while it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import ContextError
from runtime.engine import Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output
from runtime.models.registry import load_registry
from runtime.process import client, model_process
from runtime.process.client import EngineProcess
from runtime.process.replies import LiveReplies, LiveReply
from tests.support.mishaps import PIECE, SLOW

GREEDY = Sampling(temperature=0)
QUESTION = [Message("user", "What does os.path.join do?")]


@pytest.fixture
def said() -> list[str]:
    """What the engine told the person."""
    return []


@pytest.fixture
def engine(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineProcess]:
    """One that takes its time with some calls: tests.support.mishaps."""
    monkeypatch.setattr(model_process, "HOST", "tests.support.mishaps")
    found = EngineProcess(load_registry()["demo"], Options(threads=1), say=said.append)
    yield found
    found.close()


def test_a_long_prompt_can_be_sent_while_nothing_is_read(engine: EngineProcess) -> None:
    """The process waits until what it made is read, and reads no prompt meanwhile."""
    unread = engine.add(Ask(QUESTION, GREEDY, 400, n_logprobs=500), lambda output: time.sleep(0.02))
    time.sleep(1.5)  # by then the pipe is full, because what it sends is taken slowly
    with pytest.raises(ContextError):
        engine.reply("word " * 300_000, GREEDY, 5)
    engine.end(unread)
    assert "".join(chunk.text for chunk in engine.reply(QUESTION, GREEDY, 20)).startswith("Join")


def test_a_reply_that_waits_for_an_embedding_is_not_given_up(
    engine: EngineProcess, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TEXT", PIECE / 3)
    together = Concurrent(engine)
    told = together.add(("What is a list?", GREEDY, None), 5)
    engine.embed([5] * SLOW)
    together.until(lambda: told.is_over)
    assert (told.error, said) == (None, [])
    assert told.tokens


class Silent:
    """Stands for a process that begins and ends nothing."""

    is_alive, silent_since = True, 0.0

    def add(self, number: int, ask: Ask) -> None:
        """Does not begin it."""

    def cancel(self, number: int) -> None:
        """Does not end it."""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time."""
    found = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: found[0])
    return found


def submitted(process: Any, *numbers: int) -> LiveReplies:
    """Replies that this process has."""
    replies = LiveReplies(lambda: None)
    for number in numbers:
        replies.add(LiveReply(number, Ask(QUESTION, GREEDY), lambda output: None))
    replies.submit(process)
    return replies


def test_only_silence_counts(now: list[float]) -> None:
    process: Any = Silent()
    replies = submitted(process, 1)

    def overdue() -> int | None:
        reply = replies.overdue(process, 15.0, 5.0)
        return reply and reply.number

    now[0] = 20.0
    assert overdue() == 1
    process.silent_since = 20.0
    assert overdue() is None
    replies.leave(1)
    now[0] = 24.0
    assert overdue() is None
    now[0] = 26.0
    assert overdue() == 1


def test_what_waits_for_another_or_was_ended_is_not_overdue(now: list[float]) -> None:
    process: Any = Silent()
    replies = submitted(process, 1, 2)
    replies.take(Output(1, Chunk("a", (5,))))
    now[0] = 20.0
    assert replies.overdue(process, 15.0, 5.0) is None  # the second waits for the first
    replies.leave(1)
    replies.leave(2)
    for number in (1, 2):
        replies.take(Output(number, Chunk("", finish_reason="cancelled")))
    now[0] = 40.0
    assert replies.overdue(process, 15.0, 5.0) is None
    assert replies.overdue(Silent(), 15.0, 5.0) is None  # type: ignore[arg-type]
