"""A backend whose memory can be given up and had again: the model is closed, and later opened a second time beside the
decoding.

Knows the Backend protocol and a thread; knows no model library and no reason to do either.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from runtime.core.backend import Backend
from runtime.core.draft import NO_DRAFT, Draft, Logits, Tokens

OnProgress = Callable[[str, float], bool]  # (what is being loaded, share of it) -> go on?
Opens = Callable[[ExitStack, OnProgress], Backend]  # (where to leave what closes it, progress) -> an open backend


class Releasable:
    """Implements Backend while it `is_open`. The caller sees to it that nothing is asked of it otherwise."""

    def __init__(self, opens: Opens, on_progress: OnProgress) -> None:
        self._opens, self._stack = opens, ExitStack()
        self._inner: Backend | None = None
        self._coming: Future[tuple[Backend, ExitStack]] | None = None
        self._wanted = True
        self._threads: tuple[int, int] | None = None
        self._n_kept = 1
        self._take(self._open(on_progress))
        self.n_ctx, self.n_vocab = self.inner.n_ctx, self.inner.n_vocab
        self.can_rewind, self.can_branch = self.inner.can_rewind, self.inner.can_branch

    @property
    def inner(self) -> Backend:
        """The backend itself."""
        assert self._inner is not None
        return self._inner

    @property
    def is_open(self) -> bool:
        """Can it be asked?"""
        return self._inner is not None

    def forward(self, context: Tokens, draft: Draft = NO_DRAFT) -> Logits:
        """See Backend."""
        return self.inner.forward(context, draft)

    def n_cached(self, context: Tokens) -> int:
        """See Backend."""
        return self.inner.n_cached(context)

    def recall(self, context: Tokens) -> None:
        """See Backend."""
        self.inner.recall(context)

    def set_threads(self, one: int, many: int) -> None:
        """Holds for what is opened later, too."""
        self._threads = one, many
        if self._inner is not None:
            self._inner.set_threads(one, many)

    def keep(self, n: int) -> None:
        """How many conversations it holds; also for what is opened later."""
        self._n_kept = n
        if self._inner is not None:
            self.inner.keep(n)

    def reopen(self) -> bool:
        """Sees to it that it is opened, in a thread of its own; is it? Raises what opening raised."""
        if self._inner is None and self._coming is None:
            self._wanted = True
            pool = ThreadPoolExecutor(1, "reopen")
            self._coming = pool.submit(self._open, lambda what, share: self._wanted)
            pool.shutdown(wait=False)  # the thread ends with its only task
        if self._coming is not None and self._coming.done():
            coming, self._coming = self._coming, None
            self._take(coming.result())
        return self.is_open

    def close(self) -> None:
        """Gives everything back, also what is on its way; may be called twice."""
        self._wanted = False
        if self._coming is not None:
            coming, self._coming = self._coming, None
            if coming.exception() is None:
                coming.result()[1].close()
        self._inner = None
        self._stack.close()

    def _open(self, on_progress: OnProgress) -> tuple[Backend, ExitStack]:
        """Closes what was opened where the rest fails."""
        with ExitStack() as stack:
            backend = self._opens(stack, on_progress)
            return backend, stack.pop_all()

    def _take(self, opened: tuple[Backend, ExitStack]) -> None:
        self._inner, self._stack = opened
        if self._threads is not None:
            self.inner.set_threads(*self._threads)
        self.inner.keep(self._n_kept)
