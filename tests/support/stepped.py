"""Engines for tests of what stands before an engine: one whose steps a thread makes, and one whose replies are letters,
a letter of each in a step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

from bench.instruments.toy import facts
from runtime.core.errors import ModelError
from runtime.core.limits import Limits
from runtime.engine import Chunk
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import Output, Sink, Status
from tests.support.waiting import PATIENCE


class Stepping:
    """A LoadedEngine whose steps are made by a thread, with what is asked of the models in between; all else is the
    engine's.
    """

    def __init__(self, engine: LoadedEngine, limits: Limits) -> None:
        self._engine, self._numbers, self._on_lost = engine, count(1), lambda error: None
        self.limits = engine.core.scheduler._limits = limits
        self._asked = SimpleQueue[Callable[[], object] | None]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _run(self) -> None:
        try:
            while self._do_asked():
                self._engine.step()
        except Exception as error:
            self._on_lost(error)

    def _do_asked(self) -> bool:
        """Does what was asked, after a wait where no reply is made; False at the end."""
        while True:
            try:
                if (asked := self._asked.get(block=self._engine.core.is_idle)) is None:
                    return False
                asked()
            except Empty:
                return True

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        self._on_lost = on_lost

    def add(self, ask: Ask, sink: Sink) -> int:
        number = next(self._numbers)

        def begin() -> None:
            try:
                self._engine.begin(ask, number)
                self._engine._sinks[number] = sink
            except Exception as error:
                sink(error)

        self._asked.put(begin)
        return number

    def cancel(self, number: int) -> None:
        self._engine.cancel(number)
        self._asked.put(partial(self._engine.cancel, number))  # it may have yet to begin

    def end(self, number: int) -> None:
        self._asked.put(partial(self._engine.end, number))

    def embed(self, inputs: Any) -> Any:
        return self._answer(partial(self._engine.embed, inputs))

    def conversation(self, *asked: Any) -> Any:
        return self._answer(partial(self._engine.conversation, *asked))

    def _answer(self, call: Callable[[], Any]) -> Any:
        answer = Future[Any]()

        def do() -> None:
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        self._asked.put(do)
        return answer.result(PATIENCE)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()
        self._engine.close()


class Letters:
    """An engine whose reply to a prompt is as many `x` as it may have tokens; its thread's steps wait for `go_on`.

    A prompt `bad` is refused.
    """

    facts = facts()

    def __init__(self, limits: Limits, *, holds_one: bool = False) -> None:
        self.limits, self.holds_one = limits, holds_one
        self.begun: list[str] = []  # prompts
        self.order: list[str] = []  # prompts of the letters
        self.go_on = threading.Event()
        self._lock, self._numbers, self._on_lost = threading.RLock(), count(1), lambda error: None
        self._waiting, self._running, self._is_closed = list[Letter](), list[Letter](), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def status(self) -> Status:
        return Status(n_waiting=len(self._waiting), n_held=1)

    def watch(self, on_lost: Callable[[Exception], None]) -> None:
        self._on_lost = on_lost

    def add(self, ask: Ask, sink: Sink) -> int:
        if ask.prompt == "bad":
            raise ModelError("It is broken. Correct it.")
        with self._lock:
            self.limits.check(ask, self._waiting, self._running, self.holds_one)
            letter = Letter(next(self._numbers), ask, sink)
            self._waiting.append(letter)
            self._admit()
        return letter.number

    def _admit(self) -> None:
        for letter in self.limits.admitted(self._waiting, self._running, self.holds_one):
            self._waiting.remove(letter)
            self._running.append(letter)
            self.begun.append(str(letter.ask.prompt))
            letter.sink(Chunk(""))

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self.go_on.wait(0.01)
                with self._lock:
                    for output in self.step() if self.go_on.is_set() else ():
                        letter = next(each for each in self._running if each.number == output.number)
                        if isinstance(output.came, Chunk) and output.came.finish_reason:
                            self._running.remove(letter)
                            self._admit()
                        letter.sink(output.came)
        except Exception as error:
            self._on_lost(error)

    def step(self) -> list[Output]:
        return [self._next(letter) for letter in self._running]

    def _next(self, letter: Letter) -> Output:
        if not letter.left:
            return Output(letter.number, Chunk("", finish_reason="cancelled" if letter.is_cancelled else "stop"))
        letter.left -= 1
        self.order.append(str(letter.ask.prompt))
        return Output(letter.number, Chunk("x", (1,)))

    def cancel(self, number: int) -> None:
        with self._lock:
            for letter in [each for each in self._running if each.number == number]:
                letter.left, letter.is_cancelled = 0, True
        self._leave(number)

    def _leave(self, number: int) -> None:
        with self._lock:
            self._waiting = [each for each in self._waiting if each.number != number]

    def end(self, number: int) -> None:
        with self._lock:
            self._running = [each for each in self._running if each.number != number]
            self._leave(number)
            self._admit()

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()


class Letter:
    """A reply of Letters."""

    def __init__(self, number: int, ask: Ask, sink: Sink) -> None:
        self.number, self.ask, self.sink, self.is_cancelled = number, ask, sink, False
        self.left = 1 if ask.max_tokens is None else ask.max_tokens


class Breaking(Letters):
    """An engine that breaks in a step."""

    def step(self) -> Any:
        raise MemoryError
