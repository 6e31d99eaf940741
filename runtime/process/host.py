"""The process that has the models: `python -m runtime.process.host`, with the numbers of three pipes.

Replies are made on the main thread, which takes commands between two steps; questions about text are answered on a
second one, and a third one hears which reply is to be stopped. Knows an engine and pipes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from runtime.backends import library
from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import Chunk
from runtime.loading.neighbours import family
from runtime.process.messages import Call, Failed, Opened, Progress, Status, pack, receive, send
from runtime.process.outbox import Outbox
from runtime.process.spawning import inherited

REST = 0.5  # seconds without a command, after which prompts are stored
NOW_AND_THEN = 8  # steps between two looks at what seldom changes
# Seconds in which a reply's first token gets to its reader: where the next passes keep all cores, that takes a slice of
# the scheduler's time, some milliseconds
WAY = 5e-4
SWITCH = 1e-4  # seconds for which a question about text may keep the interpreter: a pass asks for it some thirty times


class Host:
    """A loaded engine behind pipes: `commands` for what the models do, `texts` for the rest, `stops` for numbers."""

    def __init__(self, commands: Connection, texts: Connection, stops: Connection) -> None:
        self._commands, self._texts, self._stops, self._n_steps = commands, texts, stops, 0
        self._outbox = Outbox()

    def run(self) -> None:
        """Loads what is asked for first, then answers until told to close."""
        family.add(os.getppid())
        pair, options = receive(self._commands)
        send(self._commands, library.has_gpu() and not options.without_gpu)
        try:
            engine = LoadedEngine(pair, options, self._report, learns=True)
        except Exception as error:
            send(self._commands, failed(error))
            return
        self.serve(engine)

    def serve(self, engine: LoadedEngine) -> None:
        """Answers until told to close."""
        gc.freeze()  # what was loaded stays, and need not be looked through while replies are made
        self.engine = engine
        send(self._commands, Opened(engine.facts, self._status()))
        for work in (self._answer_texts, self._hear_stops):
            threading.Thread(target=work, daemon=True).start()
        self.loop()

    def loop(self) -> None:
        """Make step after step; between two of them commands are carried out. Ends when told to close."""
        while self._obey():
            began = time.perf_counter()
            outputs = self.engine.step()
            self._outbox.add(outputs, time.perf_counter() - began)
            self._n_steps += 1
            if self._outbox.is_due:
                gives_way = self._outbox.has_first and self.engine.core.n_sequences == 1
                self._tell(*self._news())
                if gives_way:
                    time.sleep(WAY)
        self.engine.close()

    def _news(self) -> list[Status]:
        """Return what seldom changes, now and then."""
        if self._n_steps < NOW_AND_THEN and not self.engine.core.is_idle:
            return []
        self._n_steps = 0
        return [self._status()]

    def _obey(self) -> bool:
        """Carry out the commands that have come; waits for one where no reply is made. False: it is to close."""
        while self.engine.core.is_idle or self._commands.poll():
            if self.engine.core.is_idle:
                self._rest()
            try:
                call = Call(*receive(self._commands))
            except (EOFError, OSError):
                os._exit(0)  # nobody is there any more: this process has no purpose
            if call.name == "close":
                return False
            self._carry_out(call)
        return True

    def _rest(self) -> None:
        """Store what was read while no command comes."""
        while not self._commands.poll(REST) and self.engine.prompts.keep():
            pass

    def _report(self, what: str, share: float) -> bool:
        send(self._commands, Progress(what, share))
        return True  # who wants no more of it ends this process

    def _status(self) -> Status:
        engine = self.engine
        return Status(engine.holds_one, engine.n_held, engine.memory_level, engine.given_up, engine.learning)

    def _carry_out(self, call: Call) -> None:
        if call.name == "add":
            self._add(call.number, *call.args)
        elif call.name == "cancel":
            self.engine.cancel(call.number)
        else:
            self._tell(self._answer(call), self._status())

    def _add(self, number: int, ask: Ask) -> None:
        try:
            self.engine.add(ask, number)
        except Exception as error:
            self._tell(failed(error, number))
        else:
            self._outbox.begin(number)

    def _answer(self, call: Call) -> Any:
        """What the call gives or raises."""
        try:
            return getattr(self.engine, call.name)(*call.args, **call.named)
        except Exception as error:
            return failed(error)

    def _tell(self, *more: object) -> None:
        """Send what was made since the last time."""
        outputs = [
            each if isinstance(each.came, Chunk) else failed(each.came, each.number) for each in self._outbox.take()
        ]
        try:
            self._send(*outputs, *more)
        except Exception:  # what cannot be sent is a fault of ours, and not of the others
            for each in (*outputs, *more):
                self._send(sendable(each))

    def _send(self, *messages: object) -> None:
        try:
            send(self._commands, *messages)
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
        """Until nobody is there any more, whatever is being made."""
        while True:
            try:
                number = receive(self._stops)
            except (EOFError, OSError):
                os._exit(0)
            self.engine.cancel(number)


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
