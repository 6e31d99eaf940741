"""The process that has the models: `python -m runtime.process.host`, with the numbers of three pipes.

Replies are made on the main thread, questions about text are answered on a second one, and a third hears which reply
is to be stopped, or that nobody is there any more. Knows an engine and pipes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.reply import Chunk
from runtime.process.messages import Call, Failed, Opened, Progress, Status, Stepped, receive, send
from runtime.process.spawning import inherited

NOW_AND_THEN = 8  # steps between two looks at what seldom changes
NOBODY = 0  # the number of no reply


class Host:
    """A loaded engine behind pipes: `steps` for what the models do, `texts` for the rest, `stops` for numbers."""

    def __init__(self, steps: Connection, texts: Connection, stops: Connection) -> None:
        self._steps, self._texts, self._stops, self._n_steps = steps, texts, stops, 0
        self._replies: dict[int, Iterator[Chunk]] = {}
        self._ahead: dict[int, Stepped | Failed] = {}  # steps that were made before they were asked for
        self._current, self._stopped = NOBODY, set[int]()  # the reply that is made; those that nobody wants
        self._lock = threading.Lock()  # of both

    def run(self) -> None:
        """Loads what is asked for first, then answers until told to close."""
        pair, options = receive(self._steps)
        try:
            self.engine = LoadedEngine(pair, options, self._report)
        except Exception as error:
            send(self._steps, failed(error))
            return
        self._last_status = self._status()
        send(self._steps, Opened(self.engine.facts, self._last_status))
        for work in (self._answer_texts, self._hear_stops):
            threading.Thread(target=work, daemon=True).start()
        while (call := Call(*receive(self._steps))).name != "close":
            send(self._steps, self._answer(call, self._do))
            self._run_ahead(call)
        self.engine.close()

    def _report(self, what: str, share: float) -> bool:
        send(self._steps, Progress(what, share))
        return True  # who wants no more of it ends this process

    def _status(self) -> Status:
        engine = self.engine
        return Status(engine.turn_seconds, engine.n_held, engine.memory_level, engine.given_up)

    def _answer(self, call: Call, work: Callable[[Call], Any]) -> Any:
        """What the call gives or raises."""
        try:
            return work(call)
        except Exception as error:
            self._replies.pop(call.number, None)
            return failed(error)

    def _do(self, call: Call) -> Any:
        if call.name == "begin":
            return self._begin(call.number, *call.args)
        if call.name == "next":
            n_waiting, is_unwanted = call.args
            self.engine.share(n_waiting)
            if is_unwanted:
                self._stopped.add(call.number)
            return self._ahead.pop(call.number, None) or self._step(call)
        if call.name == "end":
            return self._end(call.number)
        value = getattr(self.engine, call.name)(*call.args, **call.named)
        return self._status() if value is None else value

    def _begin(self, number: int, ask: Ask) -> None:
        is_unwanted = self._stopped.__contains__
        self._replies[number] = self.engine.answer(ask, lambda: is_unwanted(number), lambda done, total: None, True)
        if is_unwanted(number):
            self._end(number)

    def _step(self, call: Call) -> Stepped:
        """Advances a reply; from its last chunk on it is forgotten."""
        number = call.number
        with self._lock:
            self._current = number
            self.engine.stop(number in self._stopped)
        try:
            chunk = next(self._replies[number])
        finally:
            with self._lock:
                self._current = NOBODY
        if chunk.finish_reason is not None:
            self._end(number)
        return Stepped(chunk, self._status_after(chunk))

    def _status_after(self, chunk: Chunk) -> Status:
        """As it is now and then, and at the end."""
        self._n_steps += 1
        if chunk.finish_reason is not None or self._n_steps % NOW_AND_THEN == 0:
            self._last_status = self._status()
        return self._last_status

    def _end(self, number: int) -> None:
        """What the reply would still say is left."""
        self._ahead.pop(number, None)
        reply = self._replies.pop(number, None)
        if reply is not None:
            reply.close()  # type: ignore[attr-defined]
        with self._lock:
            self._stopped.discard(number)

    def _run_ahead(self, call: Call) -> None:
        """While its reader is busy with a reply's last chunk and nobody else waits, the next one is made."""
        is_alone = call.name == "next" and call.args == (0, False)
        if is_alone and call.number in self._replies:
            self._ahead[call.number] = self._answer(call, self._step)

    def _answer_texts(self) -> None:
        """Until nobody is there any more."""
        while True:
            call = Call(*receive(self._texts))
            try:
                value = getattr(self.engine, call.name)
                send(self._texts, value(*call.args, **call.named) if callable(value) else value)
            except Exception as error:
                send(self._texts, failed(error))

    def _hear_stops(self) -> None:
        """Until nobody is there any more; then this process has no purpose, whatever it does."""
        while True:
            try:
                number = receive(self._stops)
            except (EOFError, OSError):
                os._exit(0)
            with self._lock:
                self._stopped.add(number)
                if number == self._current:
                    self.engine.stop(True)


def failed(error: Exception) -> Failed:
    """An error that can be sent; one that is a fault of ours with where it was raised."""
    if isinstance(error, SlipstreamError):
        return Failed(error)
    if isinstance(error, MemoryError):
        return Failed(NoMemoryError(NO_MEMORY))
    known = error if type(error).__module__ == "builtins" else RuntimeError(repr(error))
    known.add_note("".join(traceback.format_exception(error)))
    return Failed(known)


def main() -> None:
    """Signals are for the process that people meet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody is there any more
        Host(*map(inherited, sys.argv[1:])).run()
    os._exit(0)  # threads may be in the middle of something, and somebody waits


if __name__ == "__main__":
    main()
