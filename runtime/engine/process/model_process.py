"""Client side of one model process, from its start to its end.

Knows pipes and the process; must not know how to recover from its loss.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from runtime.core.backend import OnProgress
from runtime.core.children import last_line
from runtime.core.errors import ModelError
from runtime.core.memory import mapped_bytes, own_bytes
from runtime.core.spawning import spawn
from runtime.engine.engine import Ask
from runtime.engine.output import Output, Status
from runtime.engine.process.answers import Answers, TextCalls, value_of
from runtime.engine.process.messages import (
    Answered,
    Call,
    Cancel,
    Failed,
    Message,
    Opened,
    Outgoing,
    PairToOpen,
    Progress,
    UsesGpu,
    pack,
    receive_all,
    send,
)
from runtime.loading.footprint import unpacked_bytes
from runtime.loading.options import Options
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.registry import Pair

POLL_SECONDS = 0.05  # seconds of one poll of a pipe
LAST = 5.0  # seconds for a cancelled reply to end, and to close without a sign of life; then the process is killed
CLOSE = 30.0  # seconds to close while it stores prompts


class ProcessLostError(Exception):
    """The process is gone; the message states how it ended. `has_gpu`: whether it used a GPU or was about to."""

    has_gpu = False


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
        self._commands, texts, self._stops = map(self._open.enter_context, pipes)
        self._outgoing, self._answers, self._receiving = Outgoing(self._commands), Answers(), threading.Lock()
        self._has_gpu, self._received_at = False, 0.0  # whether it uses a GPU; the time of its last message
        self._texts = TextCalls(texts, self._lost, self.kill)
        try:
            opened = self._load(pair, options, on_progress)
        except BaseException:
            self._end_at_once()
            raise
        self.facts, self.status = opened.facts, opened.status

    def _load(self, pair: Pair, options: Options, on_progress: OnProgress) -> Opened:
        self._outgoing.put(pack(PairToOpen(pair, options)))
        progress = Progress("target", 0.0)
        while True:
            for came in self._next():
                match came:
                    case Opened():
                        return came
                    case UsesGpu():
                        self._has_gpu = came.has_gpu
                    case Progress():
                        progress = came
                    case Failed():
                        raise came.error
            if not on_progress(*progress):  # repeated while none comes, so that the caller can cancel
                raise KeyboardInterrupt

    @property
    def own_bytes(self) -> int:
        """Bytes of memory that it holds and no file backs; see `own_bytes`."""
        return own_bytes(self._process.pid)

    def shared_bytes(self, path: Path) -> int:
        """Return the bytes of a model's weights that it reads where their file is mapped, as any process does."""
        try:
            n_bytes = unpacked_bytes(ModelFacts(read_model_header(path)))
        except (ModelError, OSError):
            return 0
        return min(n_bytes, mapped_bytes(self._process.pid, path))

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
            send(self._stops, Cancel(number))
        self._outgoing.put(pack(Cancel(number)))

    def ask(self, call: Call) -> Any:
        """Make a call and return its result. Raises what it raises, and ProcessLostError."""
        return value_of(self._answers.expect(call, lambda numbered: self._outgoing.put(pack(numbered))))

    def push(self, call: Call, sink: Callable[[Future[Answered | Failed]], object]) -> None:
        """Make a call whose answer is pushed, by the thread that receives. Raises ProcessLostError."""
        self._answers.begin(call, lambda numbered: self._outgoing.put(pack(numbered)))[1].add_done_callback(sink)

    def receive(self, seconds: float) -> list[Output]:
        """Return the outputs of replies, waiting up to `seconds` for a message. Raises ProcessLostError."""
        with self._receiving:
            came = self._next(seconds)
            if came:
                self._received_at = time.monotonic()
            return [*self._outputs(came)]

    @property
    def is_asked(self) -> bool:
        """Whether it answers another call first."""
        return self._answers.is_expected

    @property
    def silent_since(self) -> float:
        """The time of its last message; now, if it answers another call first."""
        return time.monotonic() if self.is_asked else self._received_at

    def _outputs(self, messages: Iterable[Message]) -> Iterator[Output]:
        """Process messages and yield the outputs among them."""
        for came in messages:
            match came:
                case Output():
                    yield came
                case Status():
                    self.status = came
                case Answered() | Failed():
                    self._answers.take(came)

    def ask_text(self, call: Call) -> Any:
        """Make a call about text while replies continue; see TextCalls."""
        return self._texts.ask(call)

    def _next(self, seconds: float = POLL_SECONDS) -> list[Any]:
        """Return the messages that were sent as one, or none if none come within `seconds`. Raises ProcessLostError."""
        try:
            return receive_all(self._commands) if self._commands.poll(seconds) else []
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
        output = last_line(self._errors)
        return f"{how}; its last message: {output}" if output else how

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def close(self, is_busy: bool = False) -> None:
        """Let the process store prompts, free the models and exit; kill it if it is busy or takes long."""
        try:
            if self.is_alive and not is_busy and not self._answers.is_expected:
                self._outgoing.put(pack(Call("close")))
                self._await_end()
        finally:
            self._end_at_once()

    def _await_end(self) -> None:
        """Wait until the process has ended, while it gives signs of life, for up to CLOSE seconds."""
        self._received_at = began = time.monotonic()
        with suppress(ProcessLostError):
            while self.is_alive and time.monotonic() < min(began + CLOSE, self._received_at + LAST):
                self.receive(POLL_SECONDS)

    def _end_at_once(self) -> None:
        closed = ProcessLostError("it was closed")
        self.kill()
        self._answers.lose(closed)
        self._outgoing.end()
        self._texts.end(closed)
        with self._receiving:  # the thread that waits on the pipe notices its end first
            self._open.close()
