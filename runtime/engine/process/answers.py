"""Calls to the model process and their answers, which have the numbers of their calls.

Calls about text, which templates and vocabulary answer, have a pipe and threads of their own, so that slow ones delay
neither replies nor each other.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from itertools import count
from multiprocessing.connection import Connection
from threading import Lock, Semaphore, Thread
from typing import Any

from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError, TemplateError
from runtime.engine.output import Output
from runtime.engine.process.messages import Answered, Call, Failed, Message, Outgoing, pack, receive

AT_ONCE = 4  # calls that are answered at a time
QUICK = frozenset({"word", "end_tokens"})  # look-ups, which wait for no others
SECONDS = 15.0  # that a template or a tokenizer may take
SLOW = (
    "Reading the prompt took more than {:g} s, so it was stopped: it is too long, or the model's chat template does "
    "not end."
)


class Answers:
    """The expected answers of one process, until it is lost."""

    def __init__(self) -> None:
        self._lock, self._expected, self._numbers = Lock(), dict[int, Future[Answered | Failed]](), count(1)
        self.loss: Exception | None = None

    @property
    def is_expected(self) -> bool:
        """Whether anybody waits."""
        return bool(self._expected)

    def expect(self, call: Call, send: Callable[[Call], object], seconds: float | None = None) -> Answered | Failed:
        """Send a call with `send`, and return its answer. Raises the loss of the process, what `send` raises, and
        TimeoutError if there is no answer within `seconds`.
        """
        number, answer = self.begin(call, send)
        if not wait((answer,), seconds).done:
            self._expected.pop(number, None)
            raise TimeoutError
        return answer.result()

    def begin(self, call: Call, send: Callable[[Call], object]) -> tuple[int, Future[Answered | Failed]]:
        """Send a call with `send`, and return its number and what will be its answer. Raises the loss of the process,
        and what `send` raises.
        """
        answer, number = Future[Answered | Failed](), next(self._numbers)
        with self._lock:
            if self.loss:
                raise self.loss
            self._expected[number] = answer
            try:
                send(call._replace(number=number))
            except BaseException:
                del self._expected[number]
                raise
        return number, answer

    def take(self, came: Answered | Failed) -> None:
        """Pass on an answer, unless nobody waits for it any more."""
        if answer := self._expected.pop(came.number, None):
            answer.set_result(came)

    def lose(self, loss: Exception) -> None:
        """Fail the calls that wait, and all later ones."""
        with self._lock:
            self.loss = self.loss or loss
            while self._expected:
                self._expected.popitem()[1].set_exception(self.loss)


def value_of(came: Answered | Failed) -> Any:
    """Return the result of a call, or raise its error."""
    if isinstance(came, Answered):
        return came.value
    try:
        raise came.error
    finally:
        del came  # else the traceback would keep it alive, together with the text in it


def answer(engine: object, call: Call) -> Answered | Failed:
    """Make a call to an engine, and return its answer."""
    try:
        value = getattr(engine, call.name)
        return Answered(call.number, value(*call.args, **call.named) if callable(value) else value)
    except Exception as error:
        return Failed(call.number, sendable(error))


def sendable(error: Exception) -> Exception:
    """Return an error in a form that can be sent; errors that indicate bugs include their traceback."""
    if isinstance(error, SlipstreamError):
        return error
    if isinstance(error, MemoryError):
        return NoMemoryError(NO_MEMORY)
    known = error if type(error).__module__ == "builtins" else RuntimeError(repr(error))
    known.add_note("".join(traceback.format_exception(error)))
    return known


def packed(message: Message) -> bytes:
    """Return a message as bytes; if it cannot be pickled, which is a bug, the error of its reply or call."""
    try:
        return pack(message)
    except Exception as error:
        number = message.number if isinstance(message, Output | Answered | Failed) else 0
        kind = Output if isinstance(message, Output) else Failed
        return pack(kind(number, sendable(error)))


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
