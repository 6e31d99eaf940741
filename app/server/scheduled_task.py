"""A request's tasks between it and the engine: submitted on the event loop, run one after the other, step by step, on
the engine's thread, their chunks read on the event loop again.

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
    """The tasks of a request, in line as one, and the queue of their chunks. Must be made on the event loop that reads
    them.
    """

    def __init__(self, *tasks: EngineTask) -> None:
        self._tasks, self._n_ended = tasks, 0
        self.is_cancelled, self.queue_seconds = False, 0.0
        self.n_predicted = 0  # tokens of the reply that were read
        self.began_at = self._submitted_at = time.perf_counter()  # began: the task that runs
        self._reason: Exception | None = None  # why it was cancelled, where its reader is to know
        self._deadline: float | None = None  # of generating
        self._is_prefilled = False
        self.number, self.n_decoded = -1, 0  # the worker's number for it; tokens of the reply that is made
        self._steps: Iterator[Chunk] | None = None  # None until it starts
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    @property
    def is_short(self) -> bool:
        """Does it go before long tasks?"""
        return len(self._tasks) == 1 and self.task.is_short

    @property
    def has_begun(self) -> bool:
        """Is its current task being made?"""
        return self._steps is not None

    @property
    def task(self) -> EngineTask:
        """The one that runs."""
        return self._tasks[min(self._n_ended, len(self._tasks) - 1)]

    @property
    def is_done(self) -> bool:
        """Has the last task ended, or does nobody want the rest?"""
        return self._n_ended == len(self._tasks) or self.is_cancelled

    @property
    def n_prompt(self) -> int:
        """Tokens to read."""
        return sum(task.n_prompt for task in self._tasks)

    @property
    def changes(self) -> tuple[str, ...]:
        """What was changed in the conversations, so that the chat template takes them."""
        return tuple(change for task in self._tasks for change in task.changes)

    # on the event loop

    async def started(self) -> None:
        """Returns when the engine has started. Raises what it refused the task with."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event

    async def chunks(self, interval: float | None = None) -> AsyncIterator[list[Chunk]]:
        """The replies one after the other, as many chunks at a time as are there, and none where no token comes for so
        many seconds. The last chunk of each reply has a finish reason. Raises what failed on the way, after what came
        before.
        """
        n_left, reminder = len(self._tasks), asyncio.create_task(self._remind(interval)) if interval else None
        try:
            while n_left:
                chunks, failed = await self._next()
                self.n_predicted += sum(len(chunk.tokens) for chunk in chunks)
                n_left -= sum(chunk.finish_reason is not None for chunk in chunks)
                if chunks or not failed:
                    yield chunks
                if failed and n_left:
                    raise failed
        finally:
            if reminder:
                reminder.cancel()

    async def _next(self) -> tuple[list[Chunk], Exception | None]:
        """The chunks that are there, waiting for one, and what failed after them."""
        chunks = list[Chunk]()
        for event in [await self._events.get(), *self._there()]:
            if isinstance(event, Exception):
                return chunks, event
            if event is not None:
                chunks.append(event)
        return chunks, None

    async def _remind(self, interval: float) -> None:
        """Has the reader look up from time to time where it has nothing to read."""
        while True:
            before = self.n_predicted
            await asyncio.sleep(interval)
            if self.n_predicted == before:
                self._events.put_nowait(None)

    def _there(self) -> Iterator[Chunk | Exception | None]:
        while not self._events.empty():
            yield self._events.get_nowait()

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
        """Runs the current task for one step.

        Returns its last chunk, which the caller is to emit, or None. Raises what the engine raises, and the reason of
        a cancellation.
        """
        if self._steps is None:
            self._steps = self._begin(engine)
            return None  # others that wait begin before its prompt is read
        chunk = next(self._steps)
        self.n_decoded += len(chunk.tokens)
        if chunk.finish_reason is None:
            if chunk.tokens or chunk.text or chunk.stats:
                self.emit(chunk)
            return None
        self._steps = None  # left on the thread that began them, which may hold a lock until then
        self._n_ended += 1
        if chunk.finish_reason == "cancelled" and self._reason:
            raise self._reason
        if chunk.finish_reason == "cancelled" and not self.is_cancelled:
            return replace(chunk, finish_reason="length")
        return chunk

    def _begin(self, engine: Engine) -> Iterator[Chunk]:
        """The steps of the next task. Only the first had to wait in line."""
        self.began_at, self._is_prefilled, self._deadline = time.perf_counter(), False, None
        self.n_decoded = 0
        self.queue_seconds = 0.0 if self._n_ended else self.began_at - self._submitted_at
        steps = self.task.run(engine, self.should_stop, self._on_prefilled)
        if not self._n_ended:
            self.emit(None)
        return steps

    def _on_prefilled(self) -> None:
        self._is_prefilled = True
        if self.task.max_decode_seconds is not None:
            self._deadline = time.perf_counter() + self.task.max_decode_seconds

    def should_stop(self) -> bool:
        """Was it cancelled, has its time run out, or was the prompt only to be read?"""
        is_late = self._deadline is not None and time.perf_counter() >= self._deadline
        return self.is_cancelled or is_late or (self._is_prefilled and self.task.max_tokens == 0)
