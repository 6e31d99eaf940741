"""Calls about text: slow ones delay neither look-ups nor cancels nor, while there are few, each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from threading import Event, Thread
from typing import Any

import pytest

from runtime.core import spawning
from runtime.core.errors import ModelError, SlipstreamError
from runtime.engine import Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk
from runtime.engine.process import client
from runtime.engine.process.answers import AT_ONCE, TextAnswers, TextCalls
from runtime.engine.process.client import EngineProcess
from runtime.engine.process.host import Host
from runtime.engine.process.messages import Call, Cancel, send
from runtime.models.registry import load_registry
from tests.support.waiting import PATIENCE, wait_for

LOST = ModelError("It is lost.")


class Slow:
    """An engine whose tokenizer waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on, self.n_begun, self.cancelled = Event(), 0, list[int]()

    def prepare(self) -> None:
        pass

    def tokenize(self, text: str) -> int:
        if text == "bad":
            raise SlipstreamError("It is bad.")
        self.n_begun += 1
        assert self.go_on.wait(PATIENCE)
        return len(text)

    def word(self, token: int) -> int:
        return token

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


def in_thread(listen: Callable[[], None]) -> None:
    """Listens until the other end is closed."""

    def run() -> None:
        with suppress(EOFError, OSError):
            listen()

    Thread(target=run, daemon=True).start()


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def calls(slow: Slow) -> Iterator[TextCalls]:
    """Both ends of a pipe, which threads of this process keep."""
    ours, theirs = Pipe()
    in_thread(TextAnswers(theirs, slow).run)
    yield TextCalls(ours, lambda: LOST, lambda: None)
    slow.go_on.set()


def asking(calls: TextCalls, *words: str) -> tuple[list[Any], list[Thread]]:
    """What comes of calls that are made at the same time."""
    came = list[Any]()

    def ask(word: str) -> None:
        try:
            came.append(calls.ask(Call("tokenize", (word,))))
        except Exception as error:
            came.append(error)

    threads = [Thread(target=ask, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    return came, threads


def test_a_few_slow_calls_are_made_at_the_same_time_and_a_look_up_beside_them(calls: TextCalls, slow: Slow) -> None:
    came, threads = asking(calls, *(["x"] * AT_ONCE))
    wait_for(lambda: slow.n_begun == AT_ONCE)
    assert calls.ask(Call("word", (5,))) == 5
    assert came == []
    slow.go_on.set()
    for thread in threads:
        thread.join()
    assert came == [1] * AT_ONCE


def test_each_gets_its_own_answer(calls: TextCalls, slow: Slow) -> None:
    slow.go_on.set()
    found = dict[int, Any]()

    def ask(n: int) -> None:
        for _ in range(20):
            found[n] = calls.ask(Call("tokenize", ("x" * n,)))
            assert found[n] == n

    threads = [Thread(target=ask, args=(n,)) for n in range(1, 4 * AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(1, 4 * AT_ONCE)}
    with pytest.raises(SlipstreamError, match="It is bad"):
        calls.ask(Call("tokenize", ("bad",)))


def test_who_waits_for_a_turn_is_not_taken_for_slow(calls: TextCalls, slow: Slow) -> None:
    """The time of a call begins when it is sent: what has not been sent cannot be why the process is killed."""
    came, threads = asking(calls, *(["x"] * 2 * AT_ONCE))
    wait_for(lambda: slow.n_begun == AT_ONCE)
    assert len(calls._answers._expected) == AT_ONCE
    slow.go_on.set()
    for thread in threads:
        thread.join()
    assert came == [1] * 2 * AT_ONCE


def test_a_loss_ends_calls_that_wait(calls: TextCalls, slow: Slow) -> None:
    came, threads = asking(calls, "x", "y")
    wait_for(lambda: slow.n_begun == 2)
    calls._answers.lose(LOST)
    for thread in threads:
        thread.join()
    assert came == [LOST, LOST]
    with pytest.raises(ModelError, match="lost"):
        calls.ask(Call("word", (5,)))


def test_cancels_are_heard_whatever_else_is_done(slow: Slow) -> None:
    ours, theirs = Pipe()
    host = Host(theirs, theirs, theirs)
    host.engine = slow  # type: ignore[assignment]
    in_thread(host._take_cancels)
    for number in (3, 4):
        send(ours, Cancel(number))
    wait_for(lambda: slow.cancelled == [3, 4])


def test_slow_texts_of_others_delay_no_reply_and_no_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that people have, whose tokenizer hangs as tests.support.mishaps says."""
    monkeypatch.setattr(spawning, "HOST", "tests.support.mishaps")
    monkeypatch.setattr(client, "CANCEL_SECONDS", PATIENCE)  # a cancel has to be heard there
    engine = EngineProcess(load_registry()["demo"], Options(threads=1))
    came, asked = list[Chunk | Exception](), list[Thread]()

    def hang() -> None:
        with pytest.raises(ModelError):  # when the engine is closed
            engine.tokenize("[slow text]")

    asked += [Thread(target=hang) for _ in range(AT_ONCE - 1)]
    for thread in asked:
        thread.start()
    ids = engine.tokenize("def f(x):")
    assert engine.token_bytes(ids[0])
    number = engine.add(Ask("def f(x):", Sampling(temperature=0)), came.append)
    wait_for(lambda: any(isinstance(each, Chunk) and each.tokens for each in came))
    engine.cancel(number)
    wait_for(lambda: isinstance(came[-1], Chunk) and came[-1].finish_reason)
    assert all(thread.is_alive() for thread in asked)
    engine.close()
    for thread in asked:
        thread.join()
