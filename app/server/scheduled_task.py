"""Connects a request's tasks to the engine: submitted on the event loop, run one after the other on the engine's
thread, with their chunks read on the event loop.

Chunks are queued until they are read, so a slow client delays nobody. Must not know HTTP.
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
    """Tokens of a request's replies that were passed on, and cached tokens of its prompts."""

    n_predicted: int = 0
    n_cached: int = 0
    has_client_left: bool = False  # before the end

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Count chunks that were passed on."""
        for chunk in chunks:
            self.n_predicted += len(chunk.tokens)
            self.n_cached += chunk.stats.cached_n if chunk.finish_reason is not None and chunk.stats else 0


class ScheduledTask:
    """The tasks of a request, one entry in the worker's queue, and the queue of their chunks. Must be created on the
    event loop that reads them.
    """

    def __init__(self, *tasks: EngineTask) -> None:
        self._tasks, self._n_finished = tasks, 0
        self.is_cancelled, self.queue_seconds = False, 0.0
        self.counts = Counts()
        self._submitted_at = time.perf_counter()
        self._reason: Exception | None = None  # why it was cancelled, if the reader should be told
        self._has_started = False  # whether any chunk has arrived
        self.number = -1  # the worker's number for it
        self._run: TaskRun | None = None  # of the current task
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    @property
    def is_short(self) -> bool:
        """Whether it goes before long tasks."""
        return len(self._tasks) == 1 and self.task.is_short

    @property
    def task(self) -> EngineTask:
        """The current task."""
        return self._tasks[min(self._n_finished, len(self._tasks) - 1)]

    @property
    def is_done(self) -> bool:
        """Whether the last task has ended or the request was cancelled."""
        return self._n_finished == len(self._tasks) or self.is_cancelled

    @property
    def n_prompt(self) -> int:
        """The number of prompt tokens."""
        return sum(task.n_prompt for task in self._tasks)

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes to the conversations that the chat template required."""
        return tuple(change for task in self._tasks for change in task.changes)

    # on the event loop

    async def started(self) -> None:
        """Return when the engine has started. Raises the error with which it refused the task."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event

    async def chunks(self, interval: float | None = None) -> AsyncIterator[list[Chunk]]:
        """Yield the chunks of the replies one after the other, all available ones at a time. Yields an empty list after
        `interval` seconds without a token.

        The last chunk of each reply has a finish reason. Raises an error of the engine after the chunks before it.
        """
        n_left, reminder = len(self._tasks), asyncio.create_task(self._wake_reader(interval)) if interval else None
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
        """Wait for a chunk. Return all available chunks, and the error that follows them, if any."""
        chunks = list[Chunk]()
        for event in [await self._events.get(), *self._available()]:
            if isinstance(event, Exception):
                return chunks, event
            if event is not None:
                chunks.append(event)
        return chunks, None

    async def _wake_reader(self, interval: float) -> None:
        """Wake up the reader every `interval` seconds without a token."""
        while True:
            before = self.counts.n_predicted
            await asyncio.sleep(interval)
            if self.counts.n_predicted == before:
                self._events.put_nowait(None)

    def _available(self) -> Iterator[Chunk | Exception | None]:
        while not self._events.empty():
            yield self._events.get_nowait()

    # on either thread

    def cancel(self, reason: Exception | None = None) -> None:
        """Cancel generation within a step: nobody reads the rest, or `reason` is raised to the reader."""
        self.is_cancelled, self._reason = True, reason

    def emit(self, event: Chunk | Exception | None) -> None:
        """Put a chunk or an error into the reader's queue. None means that the engine has started."""
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    # on the engine's thread

    def begin(self, engine: Engine) -> None:
        """Begin the next task. Only the first one waited in the queue. Raises what the engine raises."""
        self._run = TaskRun(self.task)
        self.queue_seconds = 0.0 if self._n_finished else self._run.began_at - self._submitted_at
        self._run.begin(engine, self.should_stop)

    @property
    def began_at(self) -> float:
        """The time at which the current task began."""
        return self._run.began_at if self._run else self._submitted_at

    @property
    def reply(self) -> int | None:
        """The engine's number of the current reply."""
        return self._run.reply if self._run else None

    @property
    def n_decoded(self) -> int:
        """The number of tokens of the current reply so far."""
        return self._run.n_decoded if self._run else 0

    @property
    def runs_by_itself(self) -> bool:
        """Whether the current task runs its own steps instead of waiting for a reply of the engine."""
        return self._run is not None and self._run.steps is not None

    def step(self) -> Chunk | None:
        """Run one step of a task that runs its own steps. Returns and raises as `take` does, and raises what the engine
        raises.
        """
        assert self._run is not None
        assert self._run.steps is not None
        return self.take(next(self._run.steps))

    def take(self, chunk: Chunk) -> Chunk | None:
        """Pass on a chunk. Returns None, or the last chunk of a task, which the caller must emit. Raises the reason of
        a cancellation.
        """
        if not self._has_started:
            self._has_started = True
            self.emit(None)
        if self._run:
            self._run.see(chunk)
        if chunk.finish_reason is None:
            if chunk.tokens or chunk.text or chunk.stats:
                self.emit(chunk)
            return None
        self._n_finished += 1
        if chunk.finish_reason == "cancelled" and self._reason:
            raise self._reason
        if chunk.finish_reason == "cancelled" and not self.is_cancelled:
            return replace(chunk, finish_reason="length")
        return chunk

    def should_stop(self) -> bool:
        """Return whether it was cancelled, its time is over, or a prefill-only prompt has been read."""
        return self.is_cancelled or (self._run is not None and self._run.should_stop)
