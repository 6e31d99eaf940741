"""Engines for tests of what stands before an engine: replies are letters, a letter of each in a step."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

from bench.instruments.facts import facts
from runtime.core.errors import ModelError
from runtime.engine import Chunk
from runtime.engine.engine import Ask
from runtime.engine.output import Output
from tests.support.waiting import PATIENCE


class Letters:
    """An engine whose reply to a prompt is as many `x` as it may have tokens; steps wait for `go_on`.

    A prompt `bad` is refused.
    """

    facts = facts()
    n_held, memory_level = 1, "OK"

    def __init__(self, *, holds_one: bool = False) -> None:
        self.holds_one = holds_one
        self.begun: list[str] = []  # prompts
        self.order: list[str] = []  # prompts of the letters
        self.n_tended = 0
        self.go_on = threading.Event()
        self._left: dict[int, tuple[str, int]] = {}
        self._numbers = count(1)

    def add(self, ask: Ask) -> int:
        if ask.prompt == "bad":
            raise ModelError("It is broken. Correct it.")
        number = next(self._numbers)
        self.begun.append(str(ask.prompt))
        self._left[number] = str(ask.prompt), 1 if ask.max_tokens is None else ask.max_tokens
        return number

    def step(self) -> list[Output]:
        assert self.go_on.wait(PATIENCE)
        return [self._next(number) for number in list(self._left)]

    def _next(self, number: int) -> Output:
        prompt, left = self._left[number]
        if not left:
            del self._left[number]
            return Output(number, Chunk("", finish_reason="stop"))
        self._left[number] = prompt, left - 1
        self.order.append(prompt)
        return Output(number, Chunk("x", (1,)))

    def cancel(self, number: int) -> None:
        if number in self._left:
            self._left[number] = self._left[number][0], 0

    def end(self, number: int) -> None:
        self._left.pop(number, None)

    def tend(self) -> None:
        self.n_tended += 1

    def close(self) -> None:
        pass


class Breaking(Letters):
    """An engine that breaks in a step."""

    def step(self) -> Any:
        assert self.go_on.wait(PATIENCE)
        raise MemoryError
