"""Turns of replies that share passes: nobody who speaks waits for more than one pass that reads prompts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing import Pipe

import pytest

from runtime.engine import Chunk, Message, Options, Sampling
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.stats import Stats
from runtime.models.registry import load_registry
from runtime.process.client import EngineProcess
from runtime.process.flow import AHEAD
from runtime.process.host import Host
from runtime.process.messages import PAUSE, Stepped, as_step, receive_all
from runtime.process.outbox import TELL_EVERY
from runtime.process.turns import FAIR, Turns

DEMO, GREEDY = load_registry()["demo"], Sampling(temperature=0.0)
TEXT = "\n".join(f"def f{i}(x): return x + {i}" for i in range(12))


class Heard(Host):
    """A host whose messages are read here."""

    def __init__(self) -> None:
        self.told, steps = Pipe()
        super().__init__(steps, Pipe()[0], Pipe()[0])
        self.engine = LoadedEngine(DEMO, Options(slots=6, drafters=()))


@pytest.fixture
def host() -> Iterator[Heard]:
    found = Heard()
    yield found
    found.engine.close()


def begin(host: Host, *numbers: int) -> None:
    for number in numbers:
        host._begin(number, Ask([Message("user", f"{number}. Explain this:\n{TEXT}")], GREEDY, 40))


def heard(host: Heard) -> dict[int, list[Chunk]]:
    """What was made of each reply since the last time."""
    host._tell()
    found = dict[int, list[Chunk]]()
    while host.told.poll():
        for step in map(as_step, receive_all(host.told)):
            assert isinstance(step, Stepped)
            found.setdefault(step.number, []).append(step.chunk)
    return found


def n_tokens(chunks: list[Chunk]) -> int:
    return sum(len(chunk.tokens) for chunk in chunks)


def test_who_speaks_has_a_token_between_two_passes_that_read(host: Heard) -> None:
    begin(host, 1)
    while not n_tokens(heard(host).get(1, [])):
        host._take_turns()
    begin(host, 2, 3, 4)
    speaking, n_said, n_before = {1}, 0, host.engine.n_read_passes
    while speaking == {1}:
        host._take_turns()
        told = heard(host)
        assert all(n_tokens(told[number]) or told[number][-1].finish_reason for number in speaking)
        n_said += n_tokens(told[1])
        assert host.engine.n_read_passes - n_before <= n_said + 1  # the last one's token is still to be told
        speaking |= {number for number, chunks in told.items() if n_tokens(chunks)}


def test_steps_that_are_made_quickly_are_told_together(host: Heard) -> None:
    begin(host, 1)
    while not n_tokens(heard(host).get(1, [])):
        host._take_turns()
    host._outbox._told_at = time.perf_counter() + 60
    host._advance(1, 0)
    *steps, last = receive_all(host.told)
    assert (len(steps), last) == (AHEAD, PAUSE)
    host._outbox._told_at = 0.0
    host._advance(1, 0)
    assert len(receive_all(host.told)) == 1  # what comes after a while is told at once


def test_a_first_token_waits_for_nothing(host: Heard) -> None:
    begin(host, 1)
    host._outbox._step_seconds, host._outbox._told_at = 0.0, time.perf_counter() + 60
    while not host._outbox.has_first:
        assert not host._outbox.is_due
        host._take_turns()
        host._outbox._step_seconds, host._outbox._told_at = 0.0, time.perf_counter() + 60
    assert host._outbox.is_due
    assert n_tokens(heard(host)[1]) == 1
    host._outbox._told_at = time.perf_counter() + 60
    host._take_turns()
    assert not host._outbox.is_due  # those after it are told together


def test_what_would_wait_for_a_long_step_is_told_before_it(host: Heard) -> None:
    host._outbox._told_at = time.perf_counter()
    assert not host._outbox.is_due
    host._outbox._step_seconds = TELL_EVERY
    assert host._outbox.is_due


def test_prompts_that_come_together_are_read_together_and_begin_in_one_pass(host: Heard) -> None:
    begin(host, 1)
    host._take_turns()  # tells how much there is to read
    begin(host, 2, 3)
    n_before = host.engine.n_read_passes
    host._take_turns()
    assert host.engine.n_read_passes == n_before + 1
    heard(host)
    host._take_turns()
    told = heard(host)
    assert told.keys() == {1, 2, 3}
    assert all(n_tokens(chunks) for chunks in told.values())
    assert host.engine.n_read_passes <= 3


def test_short_prompts_that_come_together_have_their_first_tokens_from_the_pass_that_reads_them(host: Heard) -> None:
    def ask(number: int, prompt: str) -> None:
        host._begin(number, Ask([Message("user", prompt)], GREEDY, 40))

    ask(1, "What does os.path.join do?")
    ask(2, "What is a tuple?")
    host._take_turns()
    told = heard(host)
    assert {number: n_tokens(chunks) for number, chunks in told.items()} == {1: 1, 2: 1}
    assert host.engine.n_read_passes == 1
    took = [stats.prompt_seconds for chunks in told.values() if (stats := chunks[-1].stats)]
    assert len(took) == 2
    assert min(took) > max(took) / 2  # both waited for it
    ask(3, "What is a list?")
    for _ in range(9):
        host._take_turns()
    told = heard(host)
    assert [n_tokens(told[number]) for number in (1, 2)] == [9, 9]  # nobody waits for who comes later
    assert n_tokens(told[3])


def test_who_is_alone_hears_how_much_there_is_to_read_before_it_is_read(host: Heard) -> None:
    host._begin(1, Ask([Message("user", "What is a list?")], GREEDY, 5))
    host._take_turns()
    first, said = heard(host)[1]
    assert (first.tokens, first.n_read) == ((), 0)
    assert first.stats is not None
    assert said.n_read == first.stats.prompt_n


def chunk(n_prompt: int, n_read: int) -> Chunk:
    return Chunk("", stats=Stats(prompt_n=n_prompt), n_read=n_read)


def test_short_prompts_are_read_first_but_the_first_comer_now_and_then() -> None:
    turns = Turns()
    for number, left in ((1, 900), (2, 30), (3, 300)):
        turns.begin(number)
        turns.note(number, chunk(left + 1, 1))
    orders = [turns.reading() for _ in range(FAIR)]
    assert orders == [[2, 3, 1]] * (FAIR - 1) + [[1, 2, 3]]
    turns.note(2, chunk(31, 31))
    turns.begin(4)
    assert (turns.new(), turns.ready([1, 2, 3, 4])) == ([4], [2])
    turns.end(1)
    turns.note(4, Chunk(""))  # nothing is to be read
    assert (turns.new(), turns.ready([2, 3, 4])) == ([], [2, 4])
    assert turns.reading() == [3]


def test_a_reply_that_pauses_lets_in_who_has_come() -> None:
    engine = EngineProcess(DEMO, Options(slots=3))
    try:
        asked = [Message("user", TEXT * 4)]
        whole = "".join(each.text for each in engine.reply(asked, GREEDY, 10))
        engine.tend()
        chunks = engine.reply([Message("user", f"Again: {TEXT * 4}")], GREEDY, 10, pauses=True)
        engine.let_in()
        assert next(chunks) == Chunk("")  # before anything of it was read
        assert next(chunks).stats is not None  # and that once
        engine.share(1)
        others = engine.reply(asked, GREEDY, 10, pauses=True)
        assert "".join(each.text for each in others) == whole
        assert list(chunks)[-1].finish_reason in {"stop", "length"}
    finally:
        engine.close()
