"""The additional cost of a step with the models in a process of their own, without the pass itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from types import SimpleNamespace

import numpy as np

from bench.instruments.facts import facts
from runtime.core.drafter import NO_DRAFTER
from runtime.engine.output import Chunk, Output, Status
from runtime.process.host import Host
from runtime.process.messages import Call, receive, receive_all, send
from runtime.speculative.control.explain import Pass

REPLY = 1  # number of the reply


class Reading:
    """Stands for a loaded engine: each step reads as many bytes as a pass.

    The last chunk has the mean time between two steps, in microseconds.
    """

    status = Status()
    facts = facts()

    def __init__(self, n_read: int) -> None:
        self.weights = np.ones(n_read, dtype=np.uint8)
        self.core = SimpleNamespace(is_idle=True, n_running=1)
        self._n_steps = self._number = 0
        self._between, self._left = 0.0, 0.0

    def prepare(self) -> None:
        """Do nothing: there is no template."""

    def cancel(self, number: int) -> None:
        """Do nothing: no reply is cancelled."""

    def close(self, on_progress: Callable[[], object]) -> None:
        """Do nothing: there are no models."""

    def begin(self, n_steps: int, number: int) -> None:
        """Start a reply of `n_steps` steps."""
        self._n_steps, self.core.is_idle = n_steps, False

    def step(self) -> list[Output]:
        """Run the next step."""
        if self._number:
            self._between += time.perf_counter() - self._left
        if self._number == self._n_steps:
            self.core.is_idle = True
            return [Output(REPLY, Chunk(str(1e6 * self._between / self._n_steps), finish_reason="length"))]
        self._number += 1
        self.weights.max(initial=0)
        self._left = time.perf_counter()
        chunk = Chunk(" word", (self._number,), (False,), (" word",), made=Pass(1e-3, NO_DRAFTER, 0, 0))
        return [Output(REPLY, chunk)]


def serve(pipes: list[Connection], n_read: int) -> None:
    """Run the host in the other process."""
    host = Host(*pipes)
    host.open(Reading(n_read))  # type: ignore[arg-type]  # it has all that a host uses of an engine
    host.loop()


def microseconds_per_crossing(n_read: int, n_steps: int) -> float:
    """Return the mean over some steps of a single reply whose reader keeps up."""
    pairs = [Pipe() for _ in range(3)]
    process = get_context("spawn").Process(target=serve, args=([their for _, their in pairs], n_read))
    process.start()
    commands = pairs[0][0]
    receive(commands)
    send(commands, Call("add", (n_steps, REPLY)))
    last = read(commands)
    send(commands, Call("close"))
    process.join()
    return float(last.text)


def read(commands: Connection) -> Chunk:
    """Return the last chunk of the reply."""
    while True:
        for output in receive_all(commands):
            if isinstance(output, Output) and isinstance(output.came, Chunk) and output.came.finish_reason:
                return output.came
