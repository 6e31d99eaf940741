"""Pushes the outputs of an engine that generates each reply as an iterator, with a thread per reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock, Thread

from runtime.core.limits import UNLIMITED, Admission, Limits
from runtime.engine.engine import Answering, Ask
from runtime.engine.output import Chunk, Sink, ignore
from runtime.engine.stats import Stats


@dataclass(slots=True, eq=False)
class ThreadedReply:
    """A reply that waits or is read by its thread."""

    number: int
    ask: Ask
    sink: Sink
    cancelled: Event = field(default_factory=Event)


class ThreadedReplies(Answering):
    """Implements `add`, `cancel` and `end` of Engine with `answer`."""

    def __init__(self, limits: Limits = UNLIMITED) -> None:
        self.limits, self._numbers, self._lock = limits, count(1), Lock()
        self._admission = Admission(limits)
        self._running, self._waiting = list[ThreadedReply](), list[ThreadedReply]()

    def add(self, ask: Ask, sink: Sink) -> int:
        """See Engine. The first output is empty."""
        reply = ThreadedReply(next(self._numbers), ask, sink)
        with self._lock:
            self.limits.check(ask, self._waiting, self._running, holds_one=False)
            self._waiting.append(reply)
            self._admit()
        return reply.number

    def _admit(self) -> None:
        for reply in self._admission.admit(self._waiting, self._running, holds_one=False):
            self._waiting.remove(reply)
            self._running.append(reply)
            Thread(target=self._read, args=(reply,), daemon=True).start()

    def _read(self, reply: ThreadedReply) -> None:
        def tell(done: int, total: int) -> None:
            reply.sink(Chunk("", n_read=done + (done == total), stats=Stats(prompt_n=total + 1)))

        try:
            reply.sink(Chunk(""))
            for chunk in self.answer(reply.ask, reply.cancelled.is_set, tell):
                reply.sink(chunk)
        except Exception as error:
            reply.sink(error)
        finally:
            with self._lock:
                self._running.remove(reply)
                self._admit()

    def cancel(self, number: int) -> None:
        """See Engine."""
        with self._lock:
            waiting = [each for each in self._waiting if each.number == number]
            self._waiting = [each for each in self._waiting if each not in waiting]
            for running in self._running:
                if running.number == number:
                    running.cancelled.set()
        for reply in waiting:
            reply.sink(Chunk("", finish_reason="cancelled", stats=Stats()))

    def end(self, number: int) -> None:
        """See Engine."""
        for reply in [*self._waiting, *self._running]:
            if reply.number == number:
                reply.sink = ignore
        self.cancel(number)
