"""One request on its way: asked for on the event loop, answered on the engine's thread, read chunk by chunk on the
event loop again.

What was answered waits here, so a slow reader holds nobody up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from runtime.engine import Chunk, Engine


class Work(Protocol):
    """What a job is about."""

    @property
    def text_field(self) -> str:
        """Where the request has its text."""

    @property
    def is_short(self) -> bool:
        """Does it go before long replies?"""

    @property
    def max_tokens(self) -> int | None:
        """0: it ends when the prompt has been read."""

    @property
    def max_seconds(self) -> float | None:
        """From then on; None is no limit."""

    def begin(self, engine: Engine, cancel: Callable[[], bool], on_read: Callable[[], None]) -> Iterator[Chunk]:
        """Goes on with each chunk, of which the last has a finish reason. Raises what the engine refuses it with."""


class Job:
    """A reply that was asked for. Made on the event loop that reads it."""

    def __init__(self, ask: Work) -> None:
        self.ask, self.came = ask, time.perf_counter()
        self.is_cancelled, self.waited = False, 0.0  # seconds in line
        self._why: Exception | None = None  # it is cancelled, if its reader is to know
        self._until: float | None = None  # when the time for decoding is over
        self._is_read = False
        self._chunks: Iterator[Chunk] | None = None  # from when it is begun
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    # on the event loop

    async def accepted(self) -> None:
        """Returns when the engine has begun. Raises what it refused the request with."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The reply; the last chunk has a finish reason. Raises what went wrong on the way."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if event is not None:
                yield event
                if event.finish_reason is not None:
                    return

    # on either

    def cancel(self, why: Exception | None = None) -> None:
        """Decoding ends within a step: nobody wants the rest, or there is a reason to tell."""
        self.is_cancelled, self._why = True, why

    # on the engine's thread

    def step(self, engine: Engine) -> Chunk | None:
        """Goes on by a piece.

        Returns the last chunk, which is to be posted. Raises what the engine raises, and why it was cancelled.
        """
        if self._chunks is None:
            self.waited = time.perf_counter() - self.came
            self._chunks = self.ask.begin(engine, self.is_over, self._on_read)
            self.post(None)
        chunk = next(self._chunks)
        if chunk.finish_reason is None:
            if chunk.tokens or chunk.text:
                self.post(chunk)
            return None
        self._chunks = None  # left on the thread that began them, which may hold a lock until then
        if chunk.finish_reason == "cancelled" and self._why:
            raise self._why
        return (
            replace(chunk, finish_reason="length")
            if chunk.finish_reason == "cancelled" and not self.is_cancelled
            else chunk
        )

    def _on_read(self) -> None:
        self._is_read = True
        if self.ask.max_seconds is not None:
            self._until = time.perf_counter() + self.ask.max_seconds

    def is_over(self) -> bool:
        """Was it cancelled, is its time over, or was the prompt only to be read?"""
        in_time = self._until is None or time.perf_counter() < self._until
        return self.is_cancelled or not in_time or (self._is_read and self.ask.max_tokens == 0)

    def post(self, event: Chunk | Exception | None) -> None:
        """To whoever reads it; None says that the engine has begun."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
