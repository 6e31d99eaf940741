"""The process that runs the models: `python -m runtime.engine.process.host`, with the numbers of three pipes.

The main thread takes commands, generates replies and pushes their outputs. Others hear cancels, and calls about text.
Knows an engine and pipes.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection

from runtime.backends import library
from runtime.core.children import end_with_parent, inherited
from runtime.core.errors import SlipstreamError
from runtime.core.memory import trim_heap
from runtime.engine.engine import Ask
from runtime.engine.loaded import LoadedEngine
from runtime.engine.output import Output, Status
from runtime.engine.pooled import PooledEngine, pools
from runtime.engine.process.answers import AT_ONCE, TextAnswers, answer, packed, sendable
from runtime.engine.process.messages import (
    Cancel,
    Failed,
    Message,
    Opened,
    Outbox,
    Progress,
    UsesGpu,
    pack,
    receive,
    send,
)
from runtime.loading.neighbours import family

REST = 0.5  # seconds without a command after which prompts are stored
IDLE = 5.0  # seconds without a command after which memory is checked
# Seconds to sleep after a reply's first token, so that its reader gets a core before the next passes use all of them:
# otherwise it waits for a time slice of the operating system, some milliseconds
WAY = 5e-4
# Interpreter switch interval in seconds: a pass takes the lock about thirty times, and calls about text may hold it
SWITCH = 1e-4
HostedEngine = LoadedEngine | PooledEngine


class Host:
    """A loaded engine behind pipes: `commands` for calls to the models, `texts` for calls about text, `stops` for
    cancels.
    """

    def __init__(self, commands: Connection, texts: Connection, stops: Connection) -> None:
        self._commands, self._texts, self._stops = commands, texts, stops
        self._outbox, self._told = Outbox(), Status()
        self._pool: Executor = ThreadPoolExecutor(AT_ONCE, "requests")  # prepares them

    def load(self) -> bool:
        """Load the pair of the first message. Return whether that succeeded."""
        family.add(os.getppid())
        pair, options = receive(self._commands)
        send(self._commands, UsesGpu(library.has_gpu() and not options.without_gpu))
        try:
            engine: HostedEngine = (
                PooledEngine(pair, options, self._report)
                if pools(pair)
                else LoadedEngine(pair, options, self._report, learns=True)
            )
        except Exception as error:
            send(self._commands, Failed(0, sendable(error)))
            return False
        self.open(engine)
        return True

    def open(self, engine: HostedEngine) -> None:
        """Report that the engine is loaded, and begin to hear cancels and calls about text."""
        gc.freeze()  # loaded objects stay, and the garbage collector need not scan them while replies are generated
        self.engine, self._told = engine, engine.status
        send(self._commands, Opened(engine.facts, self._told))
        for listen in (self._take_cancels, TextAnswers(self._texts, engine).run):
            threading.Thread(target=until_left, args=(listen,), daemon=True).start()

    def loop(self) -> None:
        """Run steps, and handle commands between them, until a close command."""
        while self._obey():
            self._step()
            if self._outbox.should_send:
                gives_way = self._outbox.has_first and self.engine.n_running == 1
                self._send_outputs()
                if gives_way:
                    time.sleep(WAY)
        self.engine.close(lambda: self._report("prompts", 0.0))

    def _step(self) -> None:
        """Run a step. Its outputs are referred to by nothing else while the process waits, as an error may be large."""
        began = time.perf_counter()
        outputs = self.engine.step()
        self._outbox.add(outputs, time.perf_counter() - began)

    def _obey(self) -> bool:
        """Handle the commands that have arrived; wait for one if no reply is generated. Return False for a close
        command.
        """
        while self.engine.is_idle or self._commands.poll():
            if self.engine.is_idle:
                self._rest()
            try:
                command = receive(self._commands)
            except (EOFError, OSError):
                os._exit(0)  # the other side is gone, so this process has no purpose
            if isinstance(command, Cancel):
                self.engine.cancel(command.reply)
            elif command.name == "add":
                self._add(*command.args)
            elif command.name == "close":
                return False
            else:
                self._send_outputs(answer(self.engine, command))
        return True

    def _rest(self) -> None:
        """Store prompts, then check memory from time to time, until a command arrives."""
        while not self._commands.poll(REST) and self.engine.store_prompts():
            pass
        while not self._commands.poll(IDLE):
            gc.collect()  # an error refers to what failed, in a cycle
            trim_heap()
            with suppress(SlipstreamError):
                self.engine.tend()
            if self.engine.status != self._told:
                self._send_outputs()

    def _report(self, what: str, share: float) -> bool:
        send(self._commands, Progress(what, share))
        return True  # the client cancels loading by ending this process

    def _add(self, ask: Ask, number: int) -> None:
        try:
            self.engine.begin(ask, number, self._pool)
        except Exception as error:
            self._send_outputs(Output(number, error))
        else:
            self._outbox.begin(number)
            self._send_outputs()  # the client must know which requests are prepared, should one of them end the process

    def _send_outputs(self, *more: Message) -> None:
        """Send the outputs since the last time, `more` messages, and the status if it has changed."""
        messages: list[Message] = [*self._outbox.take()]
        if (status := self.engine.status) != self._told:
            self._told = status
            messages.append(status)
        messages += more  # whoever has an answer finds the status after it
        messages = [*map(with_sendable_error, messages)]
        try:
            together = [pack(*messages)]
        except Exception:  # a message that cannot be pickled is a bug here and must not block the others
            together = [*map(packed, messages)]
        try:
            for each in together:
                self._commands.send_bytes(each)
        except OSError:
            os._exit(0)

    def _take_cancels(self) -> None:
        """Cancel replies, also during passes."""
        while True:
            self.engine.cancel(receive(self._stops).reply)


def until_left(listen: Callable[[], None]) -> None:
    """Run `listen`, and end the process when the other side is gone."""
    with suppress(EOFError, OSError):
        listen()
    os._exit(0)


def with_sendable_error(message: Message) -> Message:
    """Return a message with its error, if it has one, in a form that can be sent."""
    if isinstance(message, Output) and isinstance(message.came, Exception):
        return Output(message.number, sendable(message.came))
    return message


def main() -> None:
    """Run the host. Signals are ignored; the client process handles them."""
    end_with_parent()
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
