"""The pipes to the models' process: neither side waits for ever, and no reply is given up while it waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import ContextError
from runtime.engine import Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.models.registry import load_registry
from runtime.process import client, spawning
from runtime.process.client import EngineProcess
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
    monkeypatch.setattr(spawning, "HOST", "tests.support.mishaps")
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
