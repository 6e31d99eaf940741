"""Calls to the model process and their answers, which have the numbers of their calls."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from itertools import count
from threading import Lock
from typing import Any

from runtime.core.errors import NO_MEMORY, NoMemoryError, SlipstreamError
from runtime.engine.output import Output
from runtime.process.messages import Answered, Call, Failed, Message, pack


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
        if not wait((answer,), seconds).done:
            self._expected.pop(number, None)
            raise TimeoutError
        return answer.result()

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
