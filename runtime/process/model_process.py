"""One life of the process that has the models: started, asked, and ended one way or another.

Knows pipes and the process; must not know what to do when it is lost.
"""

from __future__ import annotations

import math
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import StoppedError
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.messages import Call, Failed, Opened, Progress, receive, send
from runtime.process.spawning import HOST, HOST_PIPES, spawn

LOOK = 0.05  # seconds between two looks at whether an answer is still wanted
PATIENCE = 0.3  # seconds that a reply has to stop, before it is not waited for any more
LAST = 5.0  # seconds for an answer that nobody waits for any more, and to close; then the process is ended
TEXT = 15.0  # seconds that a template or a tokenizer may take
TAIL = 4096  # bytes of what it said last
Cancel = Callable[[], bool]


class ProcessLostError(Exception):
    """The process is gone; the text says how."""


class OverdueError(Exception):
    """A call took so long that the process was ended."""


def never() -> bool:
    """Nobody cancels."""
    return False


class ModelProcess:
    """Loads a pair, then answers calls: `ask` on one thread at a time, `ask_text` beside it."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress) -> None:
        """Raises what loading raises, ProcessLostError, and KeyboardInterrupt where `on_progress` says no."""
        self._open = ExitStack()
        self._process, pipes, errors = spawn(HOST, HOST_PIPES)
        self._errors = self._open.enter_context(errors)
        self._steps, self._texts, self._stops = map(self._open.enter_context, pipes)
        self._turn, self._text_turn = threading.Lock(), threading.Lock()
        self._is_owed = False  # is there an answer to come that nobody waits for?
        try:
            opened = self._load(pair, options, on_progress)
        except BaseException:
            self.close()
            raise
        self.facts, self.status = opened.facts, opened.status

    def _load(self, pair: Pair, options: Options, on_progress: OnProgress) -> Opened:
        self._send(self._steps, (pair, options))
        progress = Progress("target", 0.0)
        while True:
            while not self._poll(self._steps):  # also where nothing is to be told
                if not on_progress(*progress):
                    raise KeyboardInterrupt
            came = self._receive(self._steps)
            if isinstance(came, Opened):
                return came
            progress = came
            if not on_progress(*progress):
                raise KeyboardInterrupt

    @property
    def is_alive(self) -> bool:
        """Does it run?"""
        return self._process.poll() is None

    def ask(self, call: Call, cancel: Cancel = never, most: float = math.inf) -> Any:
        """What the call gives. Raises what it raises, StoppedError when it is cancelled and does not heed that,
        OverdueError when it takes more than `most` seconds, and ProcessLostError.
        """
        with self._turn:
            self._settle(cancel)
            self._send(self._steps, call)
            self._is_owed = True
            self._wait(call.number, cancel, time.monotonic() + most)
            self._is_owed = False
            return self._receive(self._steps)

    def _settle(self, cancel: Cancel) -> None:
        """Waits for the answer to a call that was given up."""
        deadline = time.monotonic() + LAST
        while self._is_owed and not self._poll(self._steps):
            if cancel():
                raise StoppedError
            if time.monotonic() > deadline:
                self.kill()
        if self._is_owed:
            with suppress(Exception):  # it was another's
                self._receive(self._steps)
            self._is_owed = False

    def _wait(self, number: int, cancel: Cancel, deadline: float) -> None:
        """Until the answer is there; who cancels has the reply of that number stopped, and does not wait for ever."""
        told = 0.0
        while not self._poll(self._steps):
            if time.monotonic() > deadline:
                self.kill()
                raise OverdueError
            if not cancel():
                continue
            if not told:
                told = time.monotonic()
                self._send(self._stops, number)
            elif time.monotonic() - told > PATIENCE:
                raise StoppedError

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
            return self._receive(self._texts)

    def _poll(self, pipe: Connection) -> bool:
        try:
            return pipe.poll(LOOK)
        except (OSError, EOFError) as error:
            raise ProcessLostError(self._end()) from error

    def _send(self, pipe: Connection, message: object) -> None:
        try:
            send(pipe, message)
        except OSError as error:
            raise ProcessLostError(self._end()) from error

    def _receive(self, pipe: Connection) -> Any:
        try:
            came = receive(pipe)
        except (OSError, EOFError) as error:
            raise ProcessLostError(self._end()) from error
        if isinstance(came, Failed):
            try:
                raise came.error
            finally:
                del came  # or its traceback has it, and with it the text that was sent
        return came

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
                self._send(self._steps, Call("close"))
                self._process.wait(LAST)
            self._turn.release()
        self.kill()
        self._open.close()
