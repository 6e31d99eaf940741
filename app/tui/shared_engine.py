"""One engine shared by the chat and by editors in threads of their own: a reply has exclusive use of it until it ends.

Knows the public engine API; knows no protocol and no widgets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any

from runtime.core.limits import Limits
from runtime.engine import Chunk, Engine
from runtime.engine.engine import Ask
from runtime.engine.stats import Stats
from runtime.engine.status import Status
from runtime.engine.threaded import ThreadedReplies

EDITORS = Limits(max_running=1, max_waiting=16)
POLL = 0.05  # seconds between two checks whether a waiting request was cancelled


class SharedEngine(ThreadedReplies):
    """An engine that several threads may use.

    Everything but replies, embeddings and closing is passed to the engine unchanged.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(EDITORS)
        self._engine, self._turn = engine, RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def answer(self, ask: Ask, cancel: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Iterator[Chunk]:
        """Generate a reply like Engine.answer, after the current one has ended. Raises its errors."""
        while not self._turn.acquire(timeout=POLL):
            if cancel():
                return iter((Chunk("", finish_reason="cancelled", stats=Stats()),))
        try:
            return HeldReply(self._engine.answer(ask, cancel, on_prefill), self._turn.release)
        except BaseException:
            self._turn.release()
            raise

    def embed(self, tokens: Sequence[int]) -> list[float]:
        """Embed tokens like Engine.embed, after the current reply."""
        with self._turn:
            return self._engine.embed(tokens)

    @property
    def status(self) -> Status:
        """The engine's, with the number of editors' requests that wait."""
        return self._engine.status._replace(n_waiting=len(self._waiting))

    def close(self) -> None:
        """Free the models."""
        self._engine.close()


class HeldReply(Iterator[Chunk]):
    """A reply that releases the engine when it ends or is closed early.

    Iterate and close it in the thread that began it.
    """

    def __init__(self, chunks: Iterator[Chunk], release: Callable[[], None]) -> None:
        self._chunks, self._release = chunks, release
        self._is_held = True

    def __next__(self) -> Chunk:
        try:
            chunk = next(self._chunks)
        except BaseException:  # includes StopIteration
            self.close()
            raise
        if chunk.finish_reason is not None:  # the caller may stop iterating here
            self.close()
        return chunk

    def close(self) -> None:
        """Release the engine and drop the rest of the reply."""
        if self._is_held:
            self._is_held = False
            if isinstance(self._chunks, Generator):
                self._chunks.close()
            self._release()

    def __del__(self) -> None:
        with suppress(RuntimeError):  # in another thread, while the interpreter ends
            self.close()
