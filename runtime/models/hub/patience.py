"""Limits the wait for a hub that sends its response drop by drop, which the client's own timeouts never notice.

Knows threads and clocks; must not know the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Thread
from typing import TypeVar

from runtime.models.hub.names import HubError, UnreachableError

TIMEOUT = 60.0  # seconds for a response, and for MIN_BYTES bytes of a file:
MIN_BYTES = 2**15
POLL_SECONDS = 0.5  # seconds; a signal that arrives right before a thread sleeps is handled when it wakes
NAME = "asks the hub"  # name of the threads that do

T = TypeVar("T")


def within(what: str, ask: Callable[[], T]) -> T:
    """Return or raise the result of `ask`. Raises UnreachableError if it takes too long, and abandons the call then."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=work, name=NAME, daemon=True).start()
    ends = time.monotonic() + TIMEOUT
    while not answer.done() and time.monotonic() < ends:
        wait([answer], POLL_SECONDS)
    if not answer.done():
        raise UnreachableError(
            f"The hub has not answered for {what} within {TIMEOUT:g} seconds. Check the network, and HF_ENDPOINT if "
            "it is set."
        )
    return answer.result()


@contextmanager
def opened(what: str, response: AbstractContextManager[T]) -> Iterator[T]:
    """Yield the response once its headers are there. Raises UnreachableError if that takes too long."""
    with ExitStack() as stack:
        yield within(what, lambda: stack.enter_context(response))


class DownloadPace:
    """Checks that the bytes of a file arrive fast enough to ever finish."""

    def __init__(self, what: str) -> None:
        self._what, self._since, self._n_bytes = what, time.monotonic(), 0

    def add(self, n_bytes: int) -> None:
        """Count received bytes. Raises HubError if they arrive too slowly."""
        self._n_bytes += n_bytes
        if time.monotonic() - self._since < TIMEOUT:
            return
        if self._n_bytes < MIN_BYTES:
            raise HubError(
                f"The hub sends {self._what} too slowly: {self._n_bytes:,} bytes in {TIMEOUT:g} seconds. Pull it "
                "again later: it resumes where it stopped."
            )
        self._since, self._n_bytes = time.monotonic(), 0
