"""One life of the process that has the models: started, asked, and ended one way or another.

Knows pipes and the process; must not know what to do when it is lost.
"""

from __future__ import annotations

import math
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import StoppedError
from runtime.engine.engine import Ask
from runtime.engine.reply import Chunk
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.flow import Flow
from runtime.process.messages import PAUSE, Call, Failed, Opened, Progress, Stepped, as_step, receive_all, send
from runtime.process.spawning import HOST, HOST_PIPES, spawn

LOOK = 0.05  # seconds between two looks at whether an answer is still wanted
PATIENCE = 0.3  # seconds that a reply has to stop, before it is not waited for any more
LAST = 5.0  # seconds for an answer that nobody waits for any more, and to close; then the process is ended
TEXT = 15.0  # seconds that a template or a tokenizer may take
TAIL = 4096  # bytes of what it said last
Cancel = Callable[[], bool]


class ProcessLostError(Exception):
    """The process is gone; the text says how. `has_gpu`: was it about to use one, or did it?"""

    has_gpu = False


class OverdueError(Exception):
    """A call took so long that the process was ended."""


def never() -> bool:
    """Nobody cancels."""
    return False


def unless_failed(came: Any) -> Any:
    """What has come. Raises what was raised instead."""
    if not isinstance(came, Failed):
        return came
    try:
        raise came.error
    finally:
        del came  # or its traceback has it, and with it the text that was sent


class ModelProcess:
    """Loads a pair, then answers calls: `ask` on one thread at a time, `ask_text` beside it."""

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress) -> None:
        """Raises what loading raises, ProcessLostError, and KeyboardInterrupt where `on_progress` says no."""
        self._open = ExitStack()
        self._process, pipes, errors = spawn(HOST, HOST_PIPES)
        self._errors = self._open.enter_context(errors)
        self._steps, self._texts, self._stops = map(self._open.enter_context, pipes)
        self._turn, self._text_turn = threading.Lock(), threading.Lock()
        self._n_owed = 0  # answers to come
        self._came = deque[Any]()  # what has come and was not looked at yet
        self.lets_in = False  # has somebody come who is to be let in?
        self._is_slow = False  # was the last call given up, which it did not heed?
        self._has_gpu = False  # does it compute on one?
        self._flow = Flow()
        try:
            opened = self._load(pair, options, on_progress)
        except BaseException:
            self._end_at_once()
            raise
        self.facts, self.status = opened.facts, opened.status

    def _load(self, pair: Pair, options: Options, on_progress: OnProgress) -> Opened:
        self._send(self._steps, (pair, options))
        progress = Progress("target", 0.0)
        self._has_gpu = unless_failed(self._receive(self._steps)[0])
        while True:
            while not self._poll(self._steps):  # also where nothing is to be told
                if not on_progress(*progress):
                    raise KeyboardInterrupt
            came = unless_failed(self._receive(self._steps)[0])
            if isinstance(came, Opened):
                return came
            progress = came
            if not on_progress(*progress):
                raise KeyboardInterrupt

    @property
    def is_alive(self) -> bool:
        """Does it run?"""
        return self._process.poll() is None

    def was_lost_beside(self, number: int) -> bool:
        """Was it lost while another reply was made, or none?"""
        return not self._flow.is_of(number) and not self.is_alive

    def ask(self, call: Call, cancel: Cancel = never, most: float = math.inf) -> Any:
        """What the call gives. Raises what it raises, StoppedError when it is cancelled and does not heed that,
        OverdueError when it takes more than `most` seconds itself, and ProcessLostError.
        """
        with self._turn:
            self._call(call, cancel)
            self._n_owed += 1
            while True:
                deadline = math.inf if self._flow.goes_on else time.monotonic() + most
                came = self._next(call.number, cancel, deadline)
                if not self._noted(came):
                    self._n_owed -= 1
                    if not self._n_owed:  # else it was another's, who gave it up
                        return unless_failed(came)

    def begin(self, number: int, ask: Ask, cancel: Cancel) -> None:
        """Has a reply begun. Raises as `ask` does."""
        self._flow.begin(number)  # steps of all replies are made as soon as one is asked for
        try:
            self.ask(Call("begin", (ask,), number=number), cancel, TEXT)
        except BaseException:
            self._flow.end(number)
            raise

    def end(self, number: int, *, is_over: bool) -> None:
        """Nobody reads that reply any more."""
        self._flow.end(number)
        if not is_over and self.is_alive:
            with suppress(ProcessLostError, StoppedError):
                self.ask(Call("end", number=number))

    def step(self, number: int, n_waiting: int, cancel: Cancel, pauses: bool = False) -> Chunk | None:
        """A reply's next chunk. Where it `pauses` and is still wanted, None as soon as another's has come before it, or
        somebody is let in. Raises as `ask` does.
        """
        pauses = pauses and not cancel()
        with self._turn:
            while (step := self._flow.take(number)) is None:
                if self._flow.is_due(number):
                    self._call(Call("next", (n_waiting,), number=number), cancel)
                    self._flow.ask(number)
                if pauses and n_waiting and self._flow.gives_way(number):
                    return None
                came = self._next(number, cancel, math.inf, pauses)
                if came is None:
                    return None
                if not self._noted(came):
                    self._n_owed -= 1
            return unless_failed(step).chunk  # type: ignore[no-any-return]

    def _call(self, call: Call, cancel: Cancel) -> None:
        """Sends it, as soon as a call that was given up has come to an end."""
        deadline = time.monotonic() + LAST
        while self._is_slow and not self._has_come():
            if cancel():
                raise StoppedError
            if time.monotonic() > deadline:
                self.kill()
        self._is_slow = False
        self._send(self._steps, call)

    def _noted(self, came: Any) -> bool:
        """Is it a reply's step, or does it say that no more come? Then it is kept."""
        if came == PAUSE:
            self._flow.note_pause()
            return True
        step = as_step(came)
        if step is None:
            return False
        self._flow.note(step)
        if isinstance(step, Stepped) and step.status:
            self.status = step.status
        return True

    def _next(self, number: int, cancel: Cancel, deadline: float, pauses: bool = False) -> Any:
        """What comes next; who cancels has the reply of that number stopped, and does not wait for ever. None where it
        `pauses` and somebody is let in.
        """
        patience = math.inf
        while True:
            if cancel():
                if patience == math.inf:
                    patience = time.monotonic() + PATIENCE
                    self._send(self._stops, number)
                elif time.monotonic() > patience:
                    self._is_slow = True
                    raise StoppedError
            if pauses and self.lets_in:
                self.lets_in = False
                return None
            if self._has_come():
                return self._came.popleft()
            if time.monotonic() > deadline:
                self.kill()
                raise OverdueError

    def _has_come(self) -> bool:
        """Is there an answer or a step? Waits for it for a while."""
        if not self._came and self._poll(self._steps):
            self._came += self._receive(self._steps)
        return bool(self._came)

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

    def _poll(self, pipe: Connection) -> bool:
        try:
            return pipe.poll(LOOK)
        except (OSError, EOFError) as error:
            raise self._lost() from error

    def _send(self, pipe: Connection, message: object) -> None:
        try:
            send(pipe, message)
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
                self._send(self._steps, Call("close"))
                self._steps.close()  # so that it does not wait for somebody who reads
                self._process.wait(LAST)
            self._turn.release()
        self._end_at_once()

    def _end_at_once(self) -> None:
        self.kill()
        with self._turn, self._text_turn:  # whoever waits on a pipe hears of its end first
            self._open.close()
