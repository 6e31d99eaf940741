"""A backend that can be closed to free its memory and later opened again while decoding continues.

Knows the Backend protocol and a thread; knows no model library and does not decide when to do either. Implements
Reloadable.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from runtime.core.backend import Backend, OnProgress

Opener = Callable[[ExitStack, OnProgress], Backend]  # (stack that closes it, progress) -> an open backend


class ReloadableBackend:
    """A backend that is available while `is_open`."""

    def __init__(self, opener: Opener, on_progress: OnProgress) -> None:
        self._opener, self._stack = opener, ExitStack()
        self._backend: Backend | None = None
        self._opening: Future[tuple[Backend, ExitStack]] | None = None
        self._is_wanted = True
        self._threads: tuple[int, int] | None = None
        self._slots = 1
        self._take(self._open(on_progress))

    @property
    def backend(self) -> Backend:
        """The open backend; must not be read while it is closed."""
        assert self._backend is not None
        return self._backend

    @property
    def is_open(self) -> bool:
        """Whether the backend is open."""
        return self._backend is not None

    def set_threads(self, one: int, many: int) -> None:
        """Set the threads for passes of one row and of several, now and after reopening."""
        self._threads = one, many
        if self._backend is not None:
            self._backend.set_threads(one, many)

    def set_slots(self, n: int) -> None:
        """Set the number of cached conversations, now and after reopening."""
        self._slots = n
        if self._backend is not None:
            self._backend.set_slots(n)

    def reopen(self) -> None:
        """Start opening the backend in its own thread, or install it once that is done. Raises the opening's error."""
        if self._backend is not None:
            return
        if self._opening is None:
            self._is_wanted = True
            pool = ThreadPoolExecutor(1, "reopen")
            self._opening = pool.submit(self._open, lambda what, share: self._is_wanted)
            pool.shutdown(wait=False)  # the thread ends with its only task
        if self._opening.done():
            opening, self._opening = self._opening, None
            self._take(opening.result())

    def close(self) -> None:
        """Free everything, including a backend that is being opened; may be called twice."""
        self._is_wanted = False
        if self._opening is not None:
            opening, self._opening = self._opening, None
            if opening.exception() is None:
                opening.result()[1].close()
        self._backend = None
        self._stack.close()

    def _open(self, on_progress: OnProgress) -> tuple[Backend, ExitStack]:
        """Open a backend; if a later step fails, close what was opened."""
        with ExitStack() as stack:
            backend = self._opener(stack, on_progress)
            return backend, stack.pop_all()

    def _take(self, opened: tuple[Backend, ExitStack]) -> None:
        self._backend, self._stack = opened
        if self._threads is not None:
            self._backend.set_threads(*self._threads)
        self._backend.set_slots(self._slots)
