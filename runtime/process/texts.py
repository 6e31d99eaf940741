"""Calls about text: templates and vocabulary, which are asked while replies go on, and answered several at a time, so
that a slow one delays no other. Both ends of their pipe.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Connection
from threading import Lock, Semaphore, Thread
from typing import Any

from runtime.core.errors import TemplateError
from runtime.process.answers import Answers, answer, packed, value_of
from runtime.process.messages import Answered, Call, Failed, pack, receive
from runtime.process.outgoing import Outgoing

AT_ONCE = 4  # calls that are answered at a time
QUICK = frozenset({"word", "end_tokens"})  # look-ups, which wait for no others
SECONDS = 15.0  # that a template or a tokenizer may take
SLOW = (
    "Reading the prompt took more than {:g} s, so it was stopped: it is too long, or the model's chat template does "
    "not end."
)


class TextCalls:
    """The client's end. A thread receives the answers until the process is gone."""

    def __init__(self, pipe: Connection, on_lost: Callable[[], Exception], kill: Callable[[], object]) -> None:
        """`on_lost` returns what calls raise once the process is gone; `kill` ends it."""
        self._pipe, self._on_lost, self._kill = pipe, on_lost, kill
        self._outgoing, self._answers, self._turns = Outgoing(pipe), Answers(), Semaphore(AT_ONCE)
        self._receiver = Thread(target=self._receive, name="answers about text", daemon=True)
        self._receiver.start()

    def ask(self, call: Call) -> Any:
        """Make a call, and return its result. Raises what it raises, the loss of the process, and TemplateError if it
        takes too long, for which the process is killed.
        """
        with nullcontext() if call.name in QUICK else self._turns:
            return value_of(self._answer(call))

    def _answer(self, call: Call) -> Answered | Failed:
        try:
            return self._answers.expect(call, self._put, SECONDS)
        except TimeoutError:
            self._kill()
            raise TemplateError(SLOW.format(SECONDS)) from None

    def _put(self, call: Call) -> None:
        self._outgoing.put(pack(call))

    def _receive(self) -> None:
        try:
            while True:
                self._answers.take(receive(self._pipe))  # kept in no variable, because of what an error refers to
        except (OSError, EOFError):
            self._answers.lose(self._on_lost())

    def end(self, loss: Exception) -> None:
        """End the threads; the process must be gone."""
        self._answers.lose(loss)
        self._outgoing.end()
        self._receiver.join()


class TextAnswers:
    """The end in the models' process: answers calls to an engine until the other side is gone."""

    def __init__(self, pipe: Connection, engine: Any) -> None:
        self._pipe, self._engine, self._sending = pipe, engine, Lock()
        self._pool = ThreadPoolExecutor(AT_ONCE, "text")

    def run(self) -> None:
        """Answer calls. Raises EOFError and OSError when the other side is gone."""
        self._pool.submit(self._engine.prepare)
        while True:
            call = receive(self._pipe)
            if call.name in QUICK:
                self._answer(call)
            else:
                self._pool.submit(self._answer, call)

    def _answer(self, call: Call) -> None:
        message = packed(answer(self._engine, call))
        with self._sending:
            self._pipe.send_bytes(message)
