"""The process that has the models: `python -m runtime.process.host`, with the numbers of three pipes.

Replies are made on the main thread and questions about text are answered on a second one; two more hear what is asked
next and which reply is to be stopped. Knows an engine and pipes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from runtime.backends import library
from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError, StoppedError
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.reply import Chunk
from runtime.loading.neighbours import family
from runtime.process.flow import AHEAD
from runtime.process.messages import PAUSE, Call, Failed, Opened, Progress, Status, Stepped, pack, receive, send
from runtime.process.outbox import Outbox
from runtime.process.spawning import inherited
from runtime.process.turns import Turns

NOW_AND_THEN = 8  # steps between two looks at what seldom changes
NOBODY = 0  # the number of no reply
# Seconds in which a reply's first token gets to its reader: where the next passes keep all cores, that takes a slice of
# the scheduler's time, some milliseconds
WAY = 5e-4
SWITCH = 1e-4  # seconds for which a question about text may keep the interpreter: a pass asks for it some thirty times


class Host:
    """A loaded engine behind pipes: `steps` for what the models do, `texts` for the rest, `stops` for numbers."""

    def __init__(self, steps: Connection, texts: Connection, stops: Connection) -> None:
        self._steps, self._texts, self._stops, self._n_steps = steps, texts, stops, 0
        self._calls = SimpleQueue[Call]()
        self._outbox = Outbox()
        self._replies: dict[int, Iterator[Chunk]] = {}
        self._turns = Turns()
        self._current, self._stopped = NOBODY, set[int]()  # the reply that is made; those that nobody wants
        self._lock = threading.Lock()  # of both

    def run(self) -> None:
        """Loads what is asked for first, then answers until told to close."""
        family.add(os.getppid())
        pair, options = receive(self._steps)
        send(self._steps, library.has_gpu() and not options.without_gpu)
        try:
            engine = LoadedEngine(pair, options, self._report, learns=True)
        except Exception as error:
            send(self._steps, failed(error))
            return
        self.serve(engine)

    def serve(self, engine: LoadedEngine) -> None:
        """Answers until told to close."""
        gc.freeze()  # what was loaded stays, and need not be looked through while replies are made
        self.engine = engine
        send(self._steps, Opened(engine.facts, self._status()))
        for work in (self._hear_calls, self._answer_texts, self._hear_stops):
            threading.Thread(target=work, daemon=True).start()
        self.answer_calls()

    def answer_calls(self) -> None:
        """Does what is asked until told to close."""
        while (call := self._calls.get()).name != "close":
            if call.name == "next":
                self._advance(call.number, *call.args)
            else:
                self._tell(self._answer(call))
        self.engine.close()

    def _report(self, what: str, share: float) -> bool:
        send(self._steps, Progress(what, share))
        return True  # who wants no more of it ends this process

    def _status(self) -> Status:
        engine = self.engine
        return Status(engine.turn_seconds, engine.n_held, engine.memory_level, engine.given_up, engine.learning)

    def _answer(self, call: Call) -> Any:
        """What the call gives or raises."""
        try:
            return self._do(call)
        except Exception as error:
            self._replies.pop(call.number, None)
            return failed(error)

    def _do(self, call: Call) -> Any:
        if call.name == "begin":
            return self._begin(call.number, *call.args)
        if call.name == "end":
            return self._end(call.number)
        value = getattr(self.engine, call.name)(*call.args, **call.named)
        return self._status() if value is None else value

    def _begin(self, number: int, ask: Ask) -> None:
        is_unwanted = self._stopped.__contains__
        self._replies[number] = self.engine.answer(ask, lambda: is_unwanted(number), lambda done, total: None, True)
        self._outbox.begin(number)
        self._turns.begin(number)
        if is_unwanted(number):
            self._end(number)

    def _advance(self, number: int, n_waiting: int) -> None:
        """Makes a reply's next steps until something else is asked: with those of all others where they share passes,
        one where they take turns.
        """
        if number not in self._replies:  # it was stopped before it began, or has ended meanwhile
            self._tell(Failed(StoppedError(), number))
        self.engine.share(n_waiting)
        is_shared = self.engine.facts.shares_passes and not self.engine.turn_seconds
        for _ in range(AHEAD if is_shared or not n_waiting else 1):
            if is_shared:
                self._take_turns()
            else:
                self._take_turn(number)
            if self._outbox.is_due:
                gives_way = self._outbox.has_first and len(self._replies) == 1
                self._tell()
                if gives_way:
                    time.sleep(WAY)
            if not self._calls.empty():
                break
        with self._lock:
            self._current = NOBODY
        self._tell(PAUSE)

    def _take_turns(self) -> None:
        """Makes every reply's next step, which all are in few passes; one of them may read prompts where anybody waits
        for more of a reply.
        """
        for each in self._turns.new():
            self._take_turn(each)
        ready = self._turns.ready(self._replies)
        for each in ready:
            self._take_turn(each)
        reads = True
        for each in self._turns.reading():
            if reads:
                self._tell()  # reading takes long
            n_before = self.engine.n_read_passes
            self._take_turn(each)
            reads = self.engine.n_read_passes > n_before  # its first step may have come with another's
            if reads and ready:
                break

    def _take_turn(self, number: int) -> None:
        """Makes a reply's next step."""
        if number not in self._replies:
            return
        if number != self._current:
            with self._lock:
                self._current = number
                self.engine.stop(number in self._stopped)
        began, step = time.perf_counter(), self._step(number)
        self._outbox.add(number, step, time.perf_counter() - began)

    def _step(self, number: int) -> Stepped | Failed:
        """A reply's next step; from its last one on it is forgotten."""
        try:
            chunk = next(self._replies[number])
        except Exception as error:
            self._end(number)
            return failed(error, number)
        self._n_steps += 1
        self._turns.note(number, chunk)
        if chunk.finish_reason is None:
            return Stepped(number, chunk, None if self._n_steps % NOW_AND_THEN else self._status())
        self._end(number)
        return Stepped(number, chunk, self._status())

    def _end(self, number: int) -> None:
        """What the reply would still say is left."""
        self._outbox.end(number)
        self._turns.end(number)
        reply = self._replies.pop(number, None)
        if reply is not None:
            reply.close()  # type: ignore[attr-defined]
        with self._lock:
            self._stopped &= self._replies.keys()

    def _hear_calls(self) -> None:
        """Until told to close, or nobody is there any more; then this process has no purpose, whatever it does."""
        call = None
        while call is None or call.name != "close":
            try:
                call = Call(*receive(self._steps))
            except (EOFError, OSError):
                os._exit(0)
            self._calls.put(call)

    def _tell(self, *more: object) -> None:
        """Tells what was made since the last time."""
        made = [*self._outbox.take(), *more]
        try:
            if made:
                self._send(*made)
        except Exception:  # what cannot be sent is a fault of ours, and not of the others
            for each in made:
                self._send(sendable(each))

    def _send(self, *messages: object) -> None:
        try:
            send(self._steps, *messages)
        except OSError:
            os._exit(0)

    def _answer_texts(self) -> None:
        """Until nobody is there any more."""
        self.engine.prepare()
        while True:
            call = Call(*receive(self._texts))
            try:
                value = getattr(self.engine, call.name)
                send(self._texts, value(*call.args, **call.named) if callable(value) else value)
            except Exception as error:
                send(self._texts, failed(error))

    def _hear_stops(self) -> None:
        """Until nobody is there any more."""
        while True:
            self.note_stop(receive(self._stops))

    def note_stop(self, number: int) -> None:
        """Nobody wants that reply any more: the pass that makes it ends at once."""
        with self._lock:
            self._stopped.add(number)
            if number == self._current:
                self.engine.stop(True)


def sendable(message: object) -> object:
    """The message, or why it cannot be sent."""
    try:
        pack(message)
    except Exception as error:
        return failed(error, getattr(message, "number", 0))
    return message


def failed(error: Exception, number: int = 0) -> Failed:
    """An error that can be sent; one that is a fault of ours with where it was raised."""
    if isinstance(error, SlipstreamError):
        return Failed(error, number)
    if isinstance(error, MemoryError):
        return Failed(NoMemoryError(NO_MEMORY), number)
    known = error if type(error).__module__ == "builtins" else RuntimeError(repr(error))
    known.add_note("".join(traceback.format_exception(error)))
    return Failed(known, number)


def main() -> None:
    """Signals are for the process that people meet."""
    sys.setswitchinterval(SWITCH)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody is there any more
        Host(*map(inherited, sys.argv[1:])).run()
    os._exit(0)  # threads may be in the middle of something, and somebody waits


if __name__ == "__main__":
    main()
