"""What a step of a reply costs more where the models are in a process of their own, apart from their passes."""

from __future__ import annotations

import time
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from types import SimpleNamespace

import numpy as np

from bench.instruments.facts import facts
from runtime.engine.output import Chunk, Output
from runtime.process.host import Host
from runtime.process.messages import Call, as_output, receive, receive_all, send
from runtime.speculative.control.explain import Pass

REPLY = 1  # its number


class Reading:
    """Stands for a loaded engine: each step reads as many bytes as a pass; the last one says how many microseconds came
    between two of them, in the mean.
    """

    holds_one, n_held, memory_level, given_up, learning = False, 0, "OK", "", ""
    facts = facts()

    def __init__(self, n_read: int) -> None:
        self.weights = np.ones(n_read, dtype=np.uint8)
        self.core = SimpleNamespace(is_idle=True, n_sequences=1)
        self._n_steps = self._number = 0
        self._between, self._left = 0.0, 0.0

    def prepare(self) -> None:
        """Has no template."""

    def cancel(self, number: int) -> None:
        """Nobody wants that."""

    def close(self) -> None:
        """Has nothing."""

    def add(self, n_steps: int, number: int) -> None:
        """A reply of so many steps."""
        self._n_steps, self.core.is_idle = n_steps, False

    def step(self) -> list[Output]:
        """The next one."""
        if self._number:
            self._between += time.perf_counter() - self._left
        if self._number == self._n_steps:
            self.core.is_idle = True
            return [Output(REPLY, Chunk(str(1e6 * self._between / self._n_steps), finish_reason="length"))]
        self._number += 1
        self.weights.max(initial=0)
        self._left = time.perf_counter()
        chunk = Chunk(" word", (self._number,), (False,), (" word",), made=Pass(1e-3, (), 0, 0))
        return [Output(REPLY, chunk)]


def serve(pipes: list[Connection], n_read: int) -> None:
    """What the other process does."""
    Host(*pipes).serve(Reading(n_read))  # type: ignore[arg-type]  # it has what a host asks of an engine, and no more


def microseconds_per_crossing(n_read: int, n_steps: int) -> float:
    """Mean over some steps of a reply that is alone and whose reader keeps up."""
    pairs = [Pipe() for _ in range(3)]
    process = get_context("spawn").Process(target=serve, args=([their for _, their in pairs], n_read))
    process.start()
    commands = pairs[0][0]
    receive(commands)
    send(commands, Call("add", (n_steps,), number=REPLY))
    last = read(commands)
    send(commands, Call("close"))
    process.join()
    return float(last.text)


def read(commands: Connection) -> Chunk:
    """The last chunk of the reply."""
    while True:
        for output in map(as_output, receive_all(commands)):
            if output and isinstance(output.came, Chunk) and output.came.finish_reason:
                return output.came
