"""One life of the process that has the models: started, asked, and ended one way or another.

Knows pipes and the process; must not know what to do when it is lost.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

from runtime.core.backend import OnProgress
from runtime.engine.engine import Ask
from runtime.engine.output import Output
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.messages import PIPE, Call, Failed, Opened, Progress, Status, as_output, pack, receive_all
from runtime.process.spawning import HOST, HOST_PIPES, spawn
from runtime.process.underway import Underway

LOOK = 0.05  # seconds between two looks at whether an answer is still wanted
SOON = 0.001  # seconds between two looks at whether a long call is written
LAST = 5.0  # seconds for an answer that nobody waits for any more, and to close; then the process is ended
TEXT = 15.0  # seconds that a template or a tokenizer may take
TAIL = 4096  # bytes of what it said last


class ProcessLostError(Exception):
    """The process is gone; the text says how. `has_gpu`: was it about to use one, or did it?"""

    has_gpu = False


class OverdueError(Exception):
    """A call, or the reply of that `number`, took so long to begin that the process was ended."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.number = number


def unless_failed(came: Any) -> Any:
    """What has come. Raises what was raised instead."""
    if not isinstance(came, Failed):
        return came
    try:
        raise came.error
    finally:
        del came  # or its traceback has it, and with it the text that was sent


class ModelProcess:
    """Loads a pair, then makes replies that are pushed and answers calls. Commands may be sent from any thread; one
    thread at a time receives.
    """

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress) -> None:
        """Raises what loading raises, ProcessLostError, and KeyboardInterrupt where `on_progress` says no."""
        self._open = ExitStack()
        self._process, pipes, errors = spawn(HOST, HOST_PIPES)
        self._errors = self._open.enter_context(errors)
        self._commands, self._texts, self._stops = map(self._open.enter_context, pipes)
        self._turn, self._text_turn, self._sending = threading.RLock(), threading.Lock(), threading.Lock()
        self._answers, self._outputs = deque[Any](), list[Output]()  # that have come and were not looked at yet
        self._replies = Underway()
        self._has_gpu = False  # does it compute on one?
        try:
            opened = self._load(pair, options, on_progress)
        except BaseException:
            self._end_at_once()
            raise
        self.facts, self.status = opened.facts, opened.status

    def _load(self, pair: Pair, options: Options, on_progress: OnProgress) -> Opened:
        self._send(self._commands, (pair, options))
        progress = Progress("target", 0.0)
        self._has_gpu = unless_failed(self._receive(self._commands)[0])
        while True:
            while not self._poll(self._commands):  # also where nothing is to be told
                if not on_progress(*progress):
                    raise KeyboardInterrupt
            came = unless_failed(self._receive(self._commands)[0])
            if isinstance(came, Opened):
                return came
            progress = came
            if not on_progress(*progress):
                raise KeyboardInterrupt

    @property
    def is_alive(self) -> bool:
        """Does it run?"""
        return self._process.poll() is None

    def add(self, number: int, ask: Ask) -> None:
        """Have a reply made. Raises ProcessLostError."""
        self._replies.add(number)
        self._command(Call("add", (ask,), number=number))

    def cancel(self, number: int) -> None:
        """Have a reply end at once: a pass that is made for it, or else as soon as it has begun. Raises
        ProcessLostError.
        """
        self._replies.cancel(number)
        self._send(self._stops, number)
        self._send(self._commands, Call("cancel", number=number))

    def receive(self) -> list[Output]:
        """Return what has come of replies; waits for it for a moment. Raises OverdueError for a reply that does not
        begin, and ProcessLostError.
        """
        with self._turn:
            if not self._outputs and not self._take_in():
                self._look_at_patience()
            outputs, self._outputs = self._outputs, []
        return outputs

    def ask(self, call: Call) -> Any:
        """Return what the call gives. Raises what it raises, and ProcessLostError."""
        with self._turn:
            self._command(call)
            while not self._answers:
                self._take_in()
            return unless_failed(self._answers.popleft())

    def _command(self, call: Call) -> None:
        """Send a call. While a long one is written, what comes is read: the process may be writing too, and if neither
        read, both would wait for ever. Raises ProcessLostError.
        """
        data = pack(call)
        if len(data) <= PIPE:
            self._write(self._commands, data)
            return
        with self._turn, ThreadPoolExecutor(1) as writer:
            written = writer.submit(self._write, self._commands, data)
            while not written.done():
                self._take_in(SOON)
            written.result()

    def _take_in(self, seconds: float = LOOK) -> bool:
        """Sort what comes within so many seconds. Return whether anything did."""
        if not self._poll(self._commands, seconds):
            return False
        self._replies.hear()
        for came in self._receive(self._commands):
            if isinstance(came, Status):
                self.status = came
            elif output := as_output(came):
                self._replies.note(output)
                self._outputs.append(output)
            else:
                self._answers.append(came)
        return True

    def _look_at_patience(self) -> None:
        """End a process that does not heed a cancel, or in which a reply takes too long to begin."""
        number = self._replies.overdue(TEXT, LAST)
        if number is not None:
            self.kill()
            if number:
                raise OverdueError(number)

    def ask_text(self, call: Call) -> Any:
        """What a call about text gives, beside whatever is made. Raises what it raises, OverdueError and
        ProcessLostError.
        """
        with self._text_turn:
            self._send(self._texts, call)
            deadline = time.monotonic() + TEXT
            while not self._poll(self._texts):
                if time.monotonic() > deadline:
                    self.kill()
                    raise OverdueError
            return unless_failed(self._receive(self._texts)[0])

    def _poll(self, pipe: Connection, seconds: float = LOOK) -> bool:
        try:
            return pipe.poll(seconds)
        except (OSError, EOFError) as error:
            raise self._lost() from error

    def _send(self, pipe: Connection, message: object) -> None:
        self._write(pipe, pack(message))

    def _write(self, pipe: Connection, data: bytes) -> None:
        try:
            with self._sending:
                pipe.send_bytes(data)
        except OSError as error:
            raise self._lost() from error

    def _receive(self, pipe: Connection) -> list[Any]:
        try:
            return receive_all(pipe)
        except (OSError, EOFError) as error:
            raise self._lost() from error

    def _lost(self) -> ProcessLostError:
        lost = ProcessLostError(self._end())
        lost.has_gpu = self._has_gpu
        return lost

    def _end(self) -> str:
        """How it ended: the signal, and what was said last."""
        try:
            code = self._process.wait(LAST)
        except subprocess.TimeoutExpired:
            self.kill()
            return "it did not answer"
        how = f"it ended with code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        if code == -getattr(signal, "SIGKILL", 0):
            how += ", as a system does when memory runs out"
        said = self._said()
        return f"{how}; it said: {said}" if said else how

    def _said(self) -> str:
        """The last line that it wrote."""
        if self._errors.closed:
            return ""
        self._errors.seek(0, 2)
        self._errors.seek(max(0, self._errors.tell() - TAIL))
        lines = self._errors.read().decode("utf8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """Ends it at once, whatever it does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Lets it free the models; one that is busy, or takes long, is ended."""
        if self.is_alive and self._turn.acquire(blocking=False):
            with suppress(ProcessLostError, subprocess.TimeoutExpired):
                self._send(self._commands, Call("close"))
                self._commands.close()  # so that it does not wait for somebody who reads
                self._process.wait(LAST)
            self._turn.release()
        self._end_at_once()

    def _end_at_once(self) -> None:
        self.kill()
        with self._turn, self._text_turn:  # whoever waits on a pipe hears of its end first
            self._open.close()
