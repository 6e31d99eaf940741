"""An end to waiting for a hub that answers drop by drop, which no timeout of its client's ever notices.

Knows threads and clocks; must not know what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Thread
from typing import TypeVar

from runtime.models.hub.names import HubError, UnreachableError

PATIENCE = 60.0  # seconds for an answer, and those in which so many bytes of a file must come:
LEAST = 2**15
LOOK = 0.5  # seconds; a signal that comes right before a thread sleeps is heeded when it wakes
NAME = "asks the hub"  # of the threads that do

T = TypeVar("T")


def within(what: str, ask: Callable[[], T]) -> T:
    """What `ask` gives or raises. Raises UnreachableError when that takes too long; nobody waits for it then."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=work, name=NAME, daemon=True).start()
    ends = time.monotonic() + PATIENCE
    while not answer.done() and time.monotonic() < ends:
        wait([answer], LOOK)
    if not answer.done():
        raise UnreachableError(
            f"The hub has not answered for {what} within {PATIENCE:g} seconds. Check the network, and HF_ENDPOINT if "
            "it is set."
        )
    return answer.result()


@contextmanager
def opened(what: str, response: AbstractContextManager[T]) -> Iterator[T]:
    """The response, once its head is there. Raises UnreachableError when that takes too long."""
    with ExitStack() as stack:
        yield within(what, lambda: stack.enter_context(response))


class DownloadPace:
    """Whether the bytes of a file come fast enough to ever end."""

    def __init__(self, what: str) -> None:
        self._what, self._since, self._n_bytes = what, time.monotonic(), 0

    def add(self, n_bytes: int) -> None:
        """So many more are there. Raises HubError where they come too slowly."""
        self._n_bytes += n_bytes
        if time.monotonic() - self._since < PATIENCE:
            return
        if self._n_bytes < LEAST:
            raise HubError(
                f"The hub sends {self._what} too slowly: {self._n_bytes:,} bytes in {PATIENCE:g} seconds. Pull it "
                "again later: it goes on where it stopped."
            )
        self._since, self._n_bytes = time.monotonic(), 0
