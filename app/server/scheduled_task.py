"""A task between its request and the engine: submitted on the event loop, run step by step on the engine's thread, its
chunks read on the event loop again.

Chunks wait here until they are read, so a slow client holds nobody up. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace

from app.server.task import EngineTask
from runtime.engine import Chunk, Engine


class ScheduledTask:
    """A task and the queue of its chunks. Must be made on the event loop that reads them."""

    def __init__(self, task: EngineTask) -> None:
        self.task, self.submitted_at = task, time.perf_counter()
        self.is_cancelled, self.queue_seconds = False, 0.0
        self.n_predicted = 0  # tokens of the reply that were read
        self._reason: Exception | None = None  # why it was cancelled, where its reader is to know
        self._deadline: float | None = None  # of generating
        self._is_prefilled = False
        self._steps: Iterator[Chunk] | None = None  # None until it starts
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    @property
    def is_short(self) -> bool:
        """Does it go before long tasks?"""
        return self.task.is_short

    @property
    def n_prompt(self) -> int:
        """Tokens to read."""
        return self.task.n_prompt

    # on the event loop

    async def started(self) -> None:
        """Returns when the engine has started. Raises what it refused the task with."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The reply; the last chunk has a finish reason. Raises what failed on the way."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if event is not None:
                self.n_predicted += len(event.tokens)
                yield event
                if event.finish_reason is not None:
                    return

    # on either

    def cancel(self, reason: Exception | None = None) -> None:
        """Generating ends within a step: nobody wants the rest, or there is a reason, which the reader is told."""
        self.is_cancelled, self._reason = True, reason

    def emit(self, event: Chunk | Exception | None) -> None:
        """Puts a chunk or an error into the reader's queue; None says that the engine has started."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    # on the engine's thread

    def step(self, engine: Engine) -> Chunk | None:
        """Runs the task for one step.

        Returns the last chunk, which the caller is to emit, or None. Raises what the engine raises, and the reason of
        a cancellation.
        """
        if self._steps is None:
            self.queue_seconds = time.perf_counter() - self.submitted_at
            self._steps = self.task.run(engine, self.should_stop, self._on_prefilled)
            self.emit(None)
        chunk = next(self._steps)
        if chunk.finish_reason is None:
            if chunk.tokens or chunk.text:
                self.emit(chunk)
            return None
        self._steps = None  # left on the thread that began them, which may hold a lock until then
        if chunk.finish_reason == "cancelled" and self._reason:
            raise self._reason
        if chunk.finish_reason == "cancelled" and not self.is_cancelled:
            return replace(chunk, finish_reason="length")
        return chunk

    def _on_prefilled(self) -> None:
        self._is_prefilled = True
        if self.task.max_decode_seconds is not None:
            self._deadline = time.perf_counter() + self.task.max_decode_seconds

    def should_stop(self) -> bool:
        """Was it cancelled, has its time run out, or was the prompt only to be read?"""
        is_late = self._deadline is not None and time.perf_counter() >= self._deadline
        return self.is_cancelled or is_late or (self._is_prefilled and self.task.max_tokens == 0)
