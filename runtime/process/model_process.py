"""Client side of one model process, from its start to its end.

Knows pipes and the process; must not know how to recover from its loss.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.errors import TemplateError
from runtime.engine.engine import Ask
from runtime.engine.output import Output
from runtime.engine.status import Status
from runtime.loading.options import Options
from runtime.models.registry import Pair
from runtime.process.answers import Answers
from runtime.process.messages import Call, Failed, Opened, Progress, as_output, pack, receive_all, send
from runtime.process.outgoing import Outgoing
from runtime.process.spawning import spawn

POLL_SECONDS = 0.05  # seconds of one poll of a pipe
LAST = 5.0  # seconds for a cancelled reply to end, and to close; then the process is killed
TEXT = 15.0  # seconds that a template or a tokenizer may take
SLOW_TEXT = (
    "Reading the prompt took more than {:g} s, so it was stopped: it is too long, or the model's chat template does "
    "not end."
)
TAIL = 4096  # bytes of its last error output that are read


class ProcessLostError(Exception):
    """The process is gone; the message states how it ended. `has_gpu`: whether it used a GPU or was about to."""

    has_gpu = False


def unless_failed(came: Any) -> Any:
    """Return a received message, or raise the error of a failure."""
    if not isinstance(came, Failed):
        return came
    try:
        raise came.error
    finally:
        del came  # else the traceback would keep it alive, together with the text in it


class ModelProcess:
    """A process that loads a pair, generates replies and answers calls. Calls may be made on any thread; one thread
    receives, and must go on doing so while calls wait for their answers.
    """

    def __init__(self, pair: Pair, options: Options, on_progress: OnProgress) -> None:
        """Start the process and load the pair. Raises what loading raises, ProcessLostError, and KeyboardInterrupt if
        `on_progress` returns False.
        """
        self._open = ExitStack()
        self._process, pipes, errors = spawn()
        self._errors = self._open.enter_context(errors)
        self._commands, self._texts, self._stops = map(self._open.enter_context, pipes)
        self._outgoing, self._answers = Outgoing(self._commands), Answers()
        self._receiving, self._text_turn = threading.Lock(), threading.Lock()
        self._has_gpu, self._received_at = False, 0.0  # whether it uses a GPU; the time of its last message
        try:
            opened = self._load(pair, options, on_progress)
        except BaseException:
            self._end_at_once()
            raise
        self.facts, self.status = opened.facts, opened.status

    def _load(self, pair: Pair, options: Options, on_progress: OnProgress) -> Opened:
        self._outgoing.put(pack((pair, options)))
        progress = Progress("target", 0.0)
        while True:
            for came in map(unless_failed, self._next(self._commands)):
                if isinstance(came, Opened):
                    return came
                if isinstance(came, bool):
                    self._has_gpu = came
                else:
                    progress = came
            if not on_progress(*progress):  # repeated while none comes, so that the caller can cancel
                raise KeyboardInterrupt

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def add(self, number: int, ask: Ask) -> None:
        """Start a reply."""
        self._outgoing.put(pack(Call("add", (ask, number))))

    def cancel(self, number: int) -> None:
        """Cancel a reply: its running pass stops, or it ends once it begins."""
        with suppress(OSError):  # it is gone
            send(self._stops, number)
        self._outgoing.put(pack(Call("cancel", (number,))))

    def ask(self, call: Call) -> Any:
        """Make a call and return its result. Raises what it raises, and ProcessLostError."""
        return unless_failed(self._answers.expect(partial(self._outgoing.put, pack(call))))

    def receive(self, seconds: float) -> list[Output]:
        """Return the outputs of replies, waiting up to `seconds` for a message. Raises ProcessLostError."""
        with self._receiving:
            came = self._next(self._commands, seconds)
            if came:
                self._received_at = time.monotonic()
            return [*self._outputs(came)]

    @property
    def silent_since(self) -> float:
        """The time of its last message; now, if it answers another call first."""
        return time.monotonic() if self._answers.is_expected else self._received_at

    def _outputs(self, messages: Iterable[Any]) -> Iterator[Output]:
        """Process messages and yield the outputs among them."""
        for came in messages:
            if isinstance(came, Status):
                self.status = came
            elif output := as_output(came):
                yield output
            else:
                self._answers.take(came)

    def ask_text(self, call: Call) -> Any:
        """Make a call about text while replies continue, and return its result. Raises what it raises, TemplateError if
        it takes too long, for which the process is killed, and ProcessLostError.
        """
        with self._text_turn:
            with suppress(OSError):  # it is gone, and so will its answer be
                send(self._texts, call)
            deadline = time.monotonic() + TEXT
            while not (came := self._next(self._texts)):
                if time.monotonic() > deadline:
                    self.kill()
                    raise TemplateError(SLOW_TEXT.format(TEXT))
        return unless_failed(came.pop())  # an error's traceback would keep the list alive

    def _next(self, pipe: Connection, seconds: float = POLL_SECONDS) -> list[Any]:
        """Return the messages that were sent as one, or none if none come within `seconds`. Raises ProcessLostError."""
        try:
            return receive_all(pipe) if pipe.poll(seconds) else []
        except (OSError, EOFError) as error:
            raise self._lost() from error

    def _lost(self) -> ProcessLostError:
        lost = ProcessLostError(self._end())
        lost.has_gpu = self._has_gpu
        self._answers.lose(lost)
        return lost

    def _end(self) -> str:
        """Wait for the process to end. Return a description: exit code or signal, and its last message."""
        try:
            code = self._process.wait(LAST)
        except subprocess.TimeoutExpired:
            self.kill()
            return "it did not answer"
        how = f"it ended with code {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        if code == -getattr(signal, "SIGKILL", 0):
            how += ", as systems do when memory runs out"
        output = self._last_words()
        return f"{how}; its last message: {output}" if output else how

    def _last_words(self) -> str:
        """Return the last line of its error output."""
        try:
            self._errors.seek(0, 2)
            self._errors.seek(max(0, self._errors.tell() - TAIL))
            lines = self._errors.read().decode("utf8", "replace").split("\n")
        except ValueError:  # it is closed
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def close(self, is_busy: bool = False) -> None:
        """Let the process free the models and exit; kill it if it is busy or takes long."""
        if self.is_alive and not is_busy and not self._answers.is_expected:
            self._outgoing.put(pack(Call("close")))
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LAST)
        self._end_at_once()

    def _end_at_once(self) -> None:
        self.kill()
        self._answers.lose(ProcessLostError("it was closed"))
        self._outgoing.end()
        with self._receiving, self._text_turn:  # threads that wait on a pipe notice its end first
            self._open.close()
