"""The pipes to the models' process: neither side waits for ever, and no reply is given up while it waits."""

from __future__ import annotations

import time

import pytest

from bench.instruments.concurrent_replies import Concurrent
from runtime.core.errors import ContextError
from runtime.engine import Message, Sampling
from runtime.engine.engine import Ask
from runtime.engine.process import client
from runtime.engine.process.client import EngineProcess
from tests.support.mishaps import PIECE, SLOW

GREEDY = Sampling(temperature=0)
QUESTION = [Message("user", "What does os.path.join do?")]


def test_a_long_prompt_can_be_sent_while_nothing_is_read(unlucky: EngineProcess) -> None:
    """The process waits until what it made is read, and reads no prompt meanwhile."""
    unread = unlucky.add(Ask(QUESTION, GREEDY, 400, n_logprobs=500), lambda output: time.sleep(0.02))
    time.sleep(1.5)  # by then the pipe is full, because what it sends is taken slowly
    with pytest.raises(ContextError):
        unlucky.reply("word " * 300_000, GREEDY, 5)
    unlucky.end(unread)
    assert "".join(chunk.text for chunk in unlucky.reply(QUESTION, GREEDY, 20)).startswith("Join")


def test_a_reply_that_waits_for_an_embedding_is_not_given_up(
    unlucky: EngineProcess, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BEGIN", PIECE / 3)
    together = Concurrent(unlucky)
    told = together.add(("What is a list?", GREEDY, None), 5)
    unlucky.embed([[5] * SLOW])
    together.until(lambda: told.is_over)
    assert (told.error, said) == (None, [])
    assert told.tokens
