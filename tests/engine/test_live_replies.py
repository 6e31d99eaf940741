"""What is known of replies that another process generates: which are sent when, and which take too long."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine import Grammar, Message, Sampling
from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output, Status
from runtime.engine.process.replies import NEAR, LiveReplies, LiveReply

ASK = Ask([Message("user", "What is a list?")], Sampling(temperature=0))


class Silent:
    """Stands for a process that begins and ends nothing."""

    is_alive, is_asked, silent_since, status = True, False, 0.0, Status()

    def __init__(self) -> None:
        self.got = list[int]()  # numbers of replies
        self.tokens = list[tuple[int, ...]]()  # that each of them had so far

    def add(self, number: int, ask: Ask) -> None:
        """Does not begin it."""
        self.got.append(number)
        self.tokens.append(ask.reply_tokens)

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
        replies.add(LiveReply(number, ASK, lambda output: None))
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


def test_what_is_prepared_for_too_long_is_overdue_beside_others(now: list[float]) -> None:
    process: Any = Silent()
    replies = submitted(process, 1, 2, 3)
    replies.take(Output(1, Chunk("a", (5,))))
    now[0] = 20.0  # a pass of the first one took as long
    process.status, process.silent_since = Status(preparing=(3,)), 20.0
    assert replies.overdue(process, 15.0, 5.0) is None
    now[0] = 40.0
    assert replies.overdue(process, 15.0, 5.0) is None  # another pass: nothing was heard since
    process.silent_since = 40.0
    late = replies.overdue(process, 15.0, 5.0)
    assert late is not None
    assert late.number == 3


def test_a_loss_while_grammars_are_compiled_is_theirs() -> None:
    process: Any = Silent()
    replies = submitted(process, 1, 2)
    replies.add(LiveReply(3, replace(ASK, grammar=Grammar("json_object")), lambda output: None))
    replies.submit(process)
    replies.take(Output(1, Chunk("a", (5,))))
    process.status = Status(preparing=(2, 3))
    (guilty,) = replies.lost(process)
    assert guilty.number == 3
    assert guilty.is_compiling


def test_what_was_lost_together_is_submitted_one_by_one() -> None:
    lost, process = Silent(), Silent()
    replies = submitted(lost, 1, 2, 3)
    for number in (1, 2):
        replies.take(Output(number, Chunk("a", (5,))))
    assert [each.number for each in replies.lost(lost)] == [1, 2]  # type: ignore[arg-type]
    replies.add(LiveReply(4, ASK, lambda output: None))

    def got() -> list[int]:
        replies.submit(process)  # type: ignore[arg-type]
        return process.got

    assert got() == [1]
    replies.take(Output(1, Chunk("a", (5,))))
    assert got() == [1]
    replies.take(Output(1, Chunk("a", (5,) * NEAR)))
    assert got() == [1, 2]
    replies.leave(2)
    assert got() == [1, 2, 3, 4]


def test_what_was_lost_alone_goes_on_together_with_the_others() -> None:
    lost, process = Silent(), Silent()
    replies = submitted(lost, 1, 2)
    for tokens in ((5,), (6, 7)):
        replies.take(Output(2, Chunk("a", tokens)))
    assert [each.number for each in replies.lost(lost)] == [2]  # type: ignore[arg-type]
    replies.submit(process)  # type: ignore[arg-type]
    assert (process.got, process.tokens) == ([2, 1], [(5, 6, 7), ()])


def test_what_is_cancelled_is_given_up_where_no_process_has_it_or_it_takes_long(now: list[float]) -> None:
    process: Any = Silent()
    replies = submitted(process, 1, 2)
    replies.cancel(2)
    assert replies.unheeded(process, 0.3) == []
    assert [each.number for each in replies.unheeded(Silent(), 0.3)] == [2]  # type: ignore[arg-type]
    now[0] = 0.4
    assert [each.number for each in replies.unheeded(process, 0.3)] == [2]


def test_what_is_read_ahead_is_cancelled_when_another_reply_comes() -> None:
    process, cancelled = Silent(), list[int]()
    process.cancel = cancelled.append  # type: ignore[method-assign]
    ahead = LiveReply(1, replace(ASK, is_ahead=True), lambda output: None)
    replies = LiveReplies(lambda: None)
    replies.add(ahead)
    given: Any = process
    replies.submit(given)
    replies.add(LiveReply(2, ASK, lambda output: None))
    assert cancelled == [1]
    assert not ahead.is_wanted
    replies.add(LiveReply(3, ASK, lambda output: None))
    assert cancelled == [1]
