"""Calls to the model process that wait for their answers, which come in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any


class Answers:
    """The expected answers of one process, until it is lost."""

    def __init__(self) -> None:
        self._lock, self._expected = Lock(), deque[Future[Any]]()
        self.loss: Exception | None = None

    @property
    def is_expected(self) -> bool:
        """Whether anybody waits."""
        return bool(self._expected)

    def expect(self, send: Callable[[], None]) -> Any:
        """Send a call with `send`, and return its answer. Raises the loss of the process."""
        answer = Future[Any]()
        with self._lock:
            if self.loss:
                raise self.loss
            self._expected.append(answer)
            send()
        return answer.result()

    def take(self, came: Any) -> None:
        """Pass on an answer."""
        self._expected.popleft().set_result(came)

    def lose(self, loss: Exception) -> None:
        """Fail the calls that wait, and all later ones."""
        with self._lock:
            self.loss = self.loss or loss
            while self._expected:
                self._expected.popleft().set_exception(self.loss)
