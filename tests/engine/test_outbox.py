"""When what steps brought is sent: what somebody waits for at once, further tokens together."""

from __future__ import annotations

import time

import pytest

from bench.instruments.toy import Clock
from runtime.core.errors import SettingsError
from runtime.engine.output import Chunk, Output
from runtime.engine.process.messages import SEND_INTERVAL, SEND_INTERVAL_TOGETHER, Outbox
from runtime.speculative.control.explain import Pass

TOKEN = Chunk("a", (1,), made=Pass(1e-3, "none", 0, 0))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    found.now = 100.0
    monkeypatch.setattr(time, "perf_counter", found)
    return found


@pytest.fixture
def outbox(clock: Clock) -> Outbox:
    """One whose reply 1 has begun to speak, which was sent just now."""
    found = Outbox()
    found.begin(1)
    found.add([Output(1, TOKEN)], 1e-3)
    assert found.has_first
    assert found.take() == [Output(1, TOKEN)]
    return found


def test_tokens_that_are_made_quickly_are_sent_together(outbox: Outbox, clock: Clock) -> None:
    for _ in range(10):
        clock.advance(1e-3)
        outbox.add([Output(1, TOKEN)], 1e-3)
        assert not outbox.should_send
    clock.advance(1e-3)
    outbox.add([Output(1, TOKEN)], 1e-3)
    assert outbox.should_send
    assert len(outbox.take()) == 11
    assert not outbox.should_send


def test_tokens_of_several_replies_are_sent_half_as_often(outbox: Outbox, clock: Clock) -> None:
    for number in (2, 3):
        outbox.begin(number)
        outbox.add([Output(number, TOKEN)], 1e-3)
    outbox.take()
    n_steps = 0
    while not outbox.should_send:
        clock.advance(1e-3)
        outbox.add([Output(number, TOKEN) for number in (1, 2, 3)], 1e-3)
        n_steps += 1
    assert n_steps == 1e3 * SEND_INTERVAL_TOGETHER - 1


def test_a_first_token_waits_for_nothing(outbox: Outbox) -> None:
    outbox.begin(2)
    outbox.add([Output(1, TOKEN), Output(2, TOKEN)], 1e-3)
    assert outbox.should_send
    outbox.take()
    outbox.add([Output(2, TOKEN)], 1e-3)
    assert not outbox.should_send


@pytest.mark.parametrize(
    "came", [Chunk("", finish_reason="stop"), Chunk("", n_read=9), SettingsError("wrong")], ids=["end", "read", "error"]
)
def test_neither_do_an_end_an_error_and_how_much_has_been_read(outbox: Outbox, came: Chunk | Exception) -> None:
    outbox.add([Output(1, came)], 1e-3)
    assert outbox.should_send


def test_what_would_wait_for_a_long_step_is_sent_before_it(outbox: Outbox) -> None:
    outbox.add([Output(1, TOKEN)], SEND_INTERVAL)
    assert outbox.should_send
