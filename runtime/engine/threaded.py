"""Adapts an engine that generates each reply as an iterator to the step interface, with a thread per reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Thread

from runtime.engine.engine import Ask
from runtime.engine.output import Chunk, Output
from runtime.engine.stats import Stats

POLL_SECONDS = 0.02  # seconds after which a step without outputs returns


class ThreadedReplies(ABC):
    """Implements `add`, `step`, `cancel` and `end` of Engine with `answer`."""

    def __init__(self) -> None:
        self._numbers, self._outputs = count(1), SimpleQueue[Output]()
        self._cancels: dict[int, Event] = {}

    @abstractmethod
    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """See Engine."""

    def add(self, ask: Ask) -> int:
        """See Engine; an invalid request is reported by a step."""
        number = next(self._numbers)
        self._cancels[number] = Event()
        Thread(target=self._read, args=(number, ask, self._cancels[number]), daemon=True).start()
        return number

    def _read(self, number: int, ask: Ask, cancelled: Event) -> None:
        def tell(done: int, total: int) -> None:
            self._outputs.put(Output(number, Chunk("", n_read=done + (done == total), stats=Stats(prompt_n=total + 1))))

        try:
            for chunk in self.answer(ask, cancelled.is_set, tell):
                self._outputs.put(Output(number, chunk))
        except Exception as error:
            self._outputs.put(Output(number, error))
        finally:
            del self._cancels[number]

    def step(self) -> list[Output]:
        """See Engine."""
        found = list[Output]()
        try:
            found.append(self._outputs.get(timeout=POLL_SECONDS))
            while True:
                found.append(self._outputs.get_nowait())
        except Empty:
            return found

    def cancel(self, number: int) -> None:
        """See Engine."""
        if cancelled := self._cancels.get(number):
            cancelled.set()

    def end(self, number: int) -> None:
        """See Engine."""
        self.cancel(number)
