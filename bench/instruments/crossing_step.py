"""What a step of a reply costs more where the models are in a process of their own, apart from their passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np

from bench.instruments.facts import facts
from runtime.engine.reply import Chunk
from runtime.process.flow import Flow
from runtime.process.host import Host
from runtime.process.messages import Call, Stepped, as_step, receive, receive_all, send
from runtime.speculative.control.explain import Pass

REPLY = 1  # its number


class Reading:
    """Stands for a loaded engine: each step reads as many bytes as a pass; the last one says how many microseconds came
    between two of them, in the mean.
    """

    turn_seconds, n_held, memory_level, given_up, learning = 0.0, 0, "OK", "", ""
    facts = facts()

    def __init__(self, n_read: int) -> None:
        self.weights = np.ones(n_read, dtype=np.uint8)

    def prepare(self) -> None:
        """Has no template."""

    def share(self, n_waiting: int) -> None:
        """It is alone."""

    def stop(self, is_wanted: bool) -> None:
        """Nobody wants that."""

    def close(self) -> None:
        """Has nothing."""

    def answer(self, n_steps: int, *_: Any) -> Iterator[Chunk]:
        """A reply of so many steps."""
        between = 0.0
        for number in range(n_steps):
            self.weights.max(initial=0)
            left = time.perf_counter()
            yield Chunk(" word", (number,), (False,), (" word",), made=Pass(1e-3, (), 0, 0))
            between += time.perf_counter() - left
        yield Chunk(str(1e6 * between / n_steps), finish_reason="length")


def serve(pipes: list[Connection], n_read: int) -> None:
    """What the other process does."""
    Host(*pipes).serve(Reading(n_read))  # type: ignore[arg-type]  # it has what a host asks of an engine, and no more


def microseconds_per_crossing(n_read: int, n_steps: int) -> float:
    """Mean over some steps of a reply that is alone and whose reader keeps up."""
    pairs = [Pipe() for _ in range(3)]
    process = get_context("spawn").Process(target=serve, args=([their for _, their in pairs], n_read))
    process.start()
    steps = pairs[0][0]
    receive(steps)
    send(steps, Call("begin", (n_steps,), number=REPLY))
    receive(steps)
    last = read(steps)
    send(steps, Call("close"))
    process.join()
    return float(last.chunk.text)


def read(steps: Connection) -> Stepped:
    """The last step of the reply."""
    flow = Flow()
    flow.begin(REPLY)
    while True:
        if flow.is_due(REPLY):
            send(steps, Call("next", (0,), number=REPLY))
            flow.ask(REPLY)
        for came in receive_all(steps):
            step = as_step(came)
            if step is None:
                flow.note_pause()
                continue
            assert isinstance(step, Stepped), step
            if step.chunk.finish_reason:
                return step
            flow.note(step)
            flow.take(REPLY)
