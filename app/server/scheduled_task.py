"""A request's tasks between it and the engine: submitted on the event loop, begun one after the other on the engine's
thread, their chunks read on the event loop again.

Chunks wait here until they are read, so a slow client holds nobody up. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from app.server.task import EngineTask
from app.server.task_run import TaskRun
from runtime.engine import Chunk, Engine


@dataclass(slots=True)
class Counts:
    """Tokens of a request's replies that were handed on, and of its prompts that were cached."""

    n_predicted: int = 0
    n_cached: int = 0
    has_client_left: bool = False  # before the end

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Count what was handed on."""
        for chunk in chunks:
            self.n_predicted += len(chunk.tokens)
            self.n_cached += chunk.stats.cached_n if chunk.finish_reason is not None and chunk.stats else 0


class ScheduledTask:
    """The tasks of a request, in line as one, and the queue of their chunks. Must be made on the event loop that reads
    them.
    """

    def __init__(self, *tasks: EngineTask) -> None:
        self._tasks, self._n_ended = tasks, 0
        self.is_cancelled, self.queue_seconds = False, 0.0
        self.counts = Counts()
        self._submitted_at = time.perf_counter()
        self._reason: Exception | None = None  # why it was cancelled, where its reader is to know
        self._is_heard = False  # has anything come of it?
        self.number = -1  # the worker's number for it
        self._run: TaskRun | None = None  # of the task that has begun
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    @property
    def is_short(self) -> bool:
        """Does it go before long tasks?"""
        return len(self._tasks) == 1 and self.task.is_short

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
                self.counts.add(chunks)
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
            before = self.counts.n_predicted
            await asyncio.sleep(interval)
            if self.counts.n_predicted == before:
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

    def begin(self, engine: Engine) -> None:
        """Begin the next task; only the first had to wait in line. Raises what the engine raises."""
        self._run = TaskRun(self.task)
        self.queue_seconds = 0.0 if self._n_ended else self._run.began_at - self._submitted_at
        self._run.begin(engine, self.should_stop)

    @property
    def began_at(self) -> float:
        """When the task began that runs."""
        return self._run.began_at if self._run else self._submitted_at

    @property
    def reply(self) -> int | None:
        """The engine's number of the reply that is made."""
        return self._run.reply if self._run else None

    @property
    def n_decoded(self) -> int:
        """Tokens of that reply so far."""
        return self._run.n_decoded if self._run else 0

    @property
    def runs_by_itself(self) -> bool:
        """Does it wait for no reply of the engine's?"""
        return self._run is not None and self._run.steps is not None

    def step(self) -> Chunk | None:
        """Run a task by itself for a step. Returns and raises as `take` does, and what the engine raises."""
        assert self._run is not None
        assert self._run.steps is not None
        return self.take(next(self._run.steps))

    def take(self, chunk: Chunk) -> Chunk | None:
        """Hand on what has come. Returns the last chunk of a task, which the caller is to emit, or None. Raises the
        reason of a cancellation.
        """
        if not self._is_heard:
            self._is_heard = True
            self.emit(None)
        if self._run:
            self._run.see(chunk)
        if chunk.finish_reason is None:
            if chunk.tokens or chunk.text or chunk.stats:
                self.emit(chunk)
            return None
        self._n_ended += 1
        if chunk.finish_reason == "cancelled" and self._reason:
            raise self._reason
        if chunk.finish_reason == "cancelled" and not self.is_cancelled:
            return replace(chunk, finish_reason="length")
        return chunk

    def should_stop(self) -> bool:
        """Was it cancelled, has its time run out, or was the prompt only to be read?"""
        return self.is_cancelled or (self._run is not None and self._run.should_stop)
