"""The process that runs the models: `python -m runtime.process.host`, with the numbers of three pipes.

The main thread takes commands, generates replies and pushes their outputs. A second one answers calls about text and
hears cancels. Knows an engine and pipes.
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
from multiprocessing.connection import Connection, wait
from typing import Any

from runtime.backends import library
from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import Chunk
from runtime.engine.status import Status
from runtime.loading.neighbours import family
from runtime.process.messages import Call, Failed, Opened, Progress, pack, receive, send
from runtime.process.outbox import Outbox
from runtime.process.spawning import inherited

REST = 0.5  # seconds without a command after which prompts are stored
IDLE = 5.0  # seconds without a command after which memory is checked
# Seconds to sleep after a reply's first token, so that its reader gets a core before the next passes use all of them:
# otherwise it waits for a time slice of the operating system, some milliseconds
WAY = 5e-4
# Interpreter switch interval in seconds: a pass takes the lock about thirty times, and calls about text may hold it
SWITCH = 1e-4


class Host:
    """A loaded engine behind pipes: `commands` for calls to the models, `texts` for calls about text, `stops` for the
    numbers of cancelled replies.
    """

    def __init__(self, commands: Connection, texts: Connection, stops: Connection) -> None:
        self._commands, self._texts, self._stops = commands, texts, stops
        self._outbox, self._told = Outbox(), Status()

    def load(self) -> bool:
        """Load the pair of the first message. Return whether that succeeded."""
        family.add(os.getppid())
        pair, options = receive(self._commands)
        send(self._commands, library.has_gpu() and not options.without_gpu)
        try:
            engine = LoadedEngine(pair, options, self._report, learns=True)
        except Exception as error:
            send(self._commands, failed(error))
            return False
        self.open(engine)
        return True

    def open(self, engine: LoadedEngine) -> None:
        """Report that the engine is loaded, and begin to answer calls about text."""
        gc.freeze()  # loaded objects stay, and the garbage collector need not scan them while replies are generated
        self.engine, self._told = engine, engine.status
        send(self._commands, Opened(engine.facts, self._told))
        threading.Thread(target=self._listen, daemon=True).start()

    def loop(self) -> None:
        """Run steps, and handle commands between them, until a close command."""
        while self._obey():
            began = time.perf_counter()
            outputs = self.engine.step()
            self._outbox.add(outputs, time.perf_counter() - began)
            if self._outbox.should_send:
                gives_way = self._outbox.has_first and self.engine.core.n_running == 1
                self._send_outputs()
                if gives_way:
                    time.sleep(WAY)
        self.engine.close()

    def _obey(self) -> bool:
        """Handle the commands that have arrived; wait for one if no reply is generated. Return False for a close
        command.
        """
        while self.engine.core.is_idle or self._commands.poll():
            if self.engine.core.is_idle:
                self._rest()
            try:
                call = Call(*receive(self._commands))
            except (EOFError, OSError):
                os._exit(0)  # the other side is gone, so this process has no purpose
            if call.name == "close":
                return False
            self._carry_out(call)
        return True

    def _rest(self) -> None:
        """Store prompts, then check memory from time to time, until a command arrives."""
        while not self._commands.poll(REST) and self.engine.prompts.keep():
            pass
        while not self._commands.poll(IDLE):
            with suppress(SlipstreamError):
                self.engine.tend()
            if self.engine.status != self._told:
                self._send_outputs()

    def _report(self, what: str, share: float) -> bool:
        send(self._commands, Progress(what, share))
        return True  # the client cancels loading by ending this process

    def _carry_out(self, call: Call) -> None:
        if call.name == "add":
            self._add(*call.args)
        elif call.name == "cancel":
            self.engine.cancel(*call.args)
        else:
            self._send_outputs(self._answer(call))

    def _add(self, ask: Ask, number: int) -> None:
        try:
            self.engine.begin(ask, number)
        except Exception as error:
            self._send_outputs(failed(error, number))
        else:
            self._outbox.begin(number)

    def _answer(self, call: Call) -> Any:
        """Return the result of a call, or its error."""
        try:
            value = getattr(self.engine, call.name)
            return value(*call.args, **call.named) if callable(value) else value
        except Exception as error:
            return failed(error)

    def _send_outputs(self, *more: object) -> None:
        """Send the outputs since the last time, `more` messages, and the status if it has changed."""
        outputs: list[object] = [
            each if isinstance(each.came, Chunk) else failed(each.came, each.number) for each in self._outbox.take()
        ]
        if (status := self.engine.status) != self._told:
            self._told, more = status, (*more, status)
        try:
            together = [pack(*outputs, *more)]
        except Exception:  # a message that cannot be pickled is a bug here and must not block the others
            together = [*map(packed, (*outputs, *more))]
        try:
            for each in together:
                self._commands.send_bytes(each)
        except OSError:
            os._exit(0)

    def _listen(self) -> None:
        """Hear cancels and answer calls about text, also during passes, until the other side is gone."""
        self.engine.prepare()
        try:
            while True:
                ready = wait([self._stops, self._texts])
                if self._stops in ready:
                    self.engine.cancel(receive(self._stops))
                else:
                    self._texts.send_bytes(packed(self._answer(Call(*receive(self._texts)))))
        except (EOFError, OSError):
            os._exit(0)


def packed(message: object) -> bytes:
    """Return the message as bytes, or a failure if it cannot be pickled."""
    try:
        return pack(message)
    except Exception as error:
        return pack(failed(error, getattr(message, "number", 0)))


def failed(error: Exception, number: int = 0) -> Failed:
    """Return an error in a form that can be sent; errors that indicate bugs include their traceback."""
    if isinstance(error, SlipstreamError):
        return Failed(error, number)
    if isinstance(error, MemoryError):
        return Failed(NoMemoryError(NO_MEMORY), number)
    known = error if type(error).__module__ == "builtins" else RuntimeError(repr(error))
    known.add_note("".join(traceback.format_exception(error)))
    return Failed(known, number)


def main() -> None:
    """Run the host. Signals are ignored; the client process handles them."""
    sys.setswitchinterval(SWITCH)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the other side is gone
        host = Host(*map(inherited, sys.argv[1:]))
        if host.load():
            host.loop()
    os._exit(0)  # do not wait for other threads, because the client waits for this exit


if __name__ == "__main__":
    main()
