"""Messages between the models' process and its client: each comes as what it was sent as, and a token is cheap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.instruments.toy import facts
from runtime.core.errors import ContextError
from runtime.engine.output import Chunk, Output, Status
from runtime.engine.process.messages import (
    Answered,
    Call,
    Cancel,
    Failed,
    Message,
    Opened,
    PairToOpen,
    Progress,
    UsesGpu,
    pack,
    unpack,
)
from runtime.engine.stats import Stats
from runtime.loading.options import Options
from runtime.sampling.logits import TokenLogprobs
from runtime.speculative.control.explain import Pass
from tests.support.toy_engine import PAIR

MADE = Pass(0.1, "ngram", 3, 2, 3)
TOKEN = Output(7, Chunk(" a", (5,), (True,), (" a",), made=MADE))
LAST = Output(7, Chunk("", finish_reason="stop", notice="It is full.", stats=Stats(5), stop="x", n_read=3))
LIKELY = Output(8, replace(TOKEN.came, logprobs=(TokenLogprobs(5, -0.5, ((5, -0.5),)),), made=None))  # type: ignore[type-var]
# What a call may return: what looks like an output too
VALUES: list[Any] = [None, 5, "x", [], (), (5, 1000), tuple(range(12)), tuple(TOKEN), [1, 2], {"a": (1, 2)}]
MESSAGES: list[Message] = [
    TOKEN, LAST, LIKELY, PairToOpen(PAIR, Options()), UsesGpu(True), Progress("target", 0.5), Opened(facts(), Status()),
    Cancel(7), Call("encode", ("x",), {"special": True}, 3), Status(1), *(Answered(3, value) for value in VALUES),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_it_comes_as_it_was_sent(message: Message) -> None:
    (came,) = unpack(pack(message))
    assert type(came) is type(message)
    assert came == message


def test_errors_of_replies_are_told_from_those_of_calls() -> None:
    error = ContextError("It is too long.", 9, 5)
    output, failed = unpack(pack(Output(7, error), Failed(3, error)))
    assert (type(output), output.number, str(output.came)) == (Output, 7, "It is too long.")
    assert (type(failed), failed.number, str(failed.error)) == (Failed, 3, "It is too long.")


def test_outputs_come_before_all_else_and_each_in_its_order() -> None:
    assert unpack(pack(Answered(1, 2), TOKEN, Status(1), LAST)) == [TOKEN, LAST, Answered(1, 2), Status(1)]


def test_a_token_is_pickled_without_its_classes() -> None:
    assert all(name not in pack(TOKEN) for name in (b"Output", b"Chunk", b"Pass"))
