"""A request's tasks: run one after the other on the event loop, with their chunks queued until they are read, so that a
slow client delays nobody. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from app.server.errors import client_gone
from app.server.metrics import Totals
from app.server.task import CompletionTask, EngineTask, StepTask, TaskRun, is_empty
from runtime.engine import Chunk, Engine
from runtime.engine.engine import Ask


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
    """The tasks of a request and the queue of their chunks. Must be created on the event loop that runs them."""

    def __init__(self, *tasks: EngineTask) -> None:
        self._tasks, self.task, self._n_finished = tasks, tasks[0], 0  # the current one; those before it
        self.number = -1  # the server's number for the request
        self.is_cancelled = self._has_started = False  # started: any output has arrived
        self.counts = Counts()
        self._submitted_at = time.perf_counter()
        self._reason: Exception | None = None  # why it was cancelled, if the reader should be told
        self._run: TaskRun | None = None  # of the current task
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()

    @property
    def n_prompt(self) -> int:
        """The number of prompt tokens."""
        return sum(task.n_prompt for task in self._tasks)

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes to the conversations that the chat template required."""
        return tuple(change for task in self._tasks for change in task.changes)

    @property
    def is_reply(self) -> bool:
        """Whether the engine replies to it; else it runs steps of its own."""
        return isinstance(self.task, CompletionTask)

    @property
    def has_begun(self) -> bool:
        """Whether the engine has begun it, so that it no longer waits."""
        return self._n_finished > 0 or (self._run is not None and self._run.began_at is not None)

    @property
    def n_decoded(self) -> int:
        """The number of tokens of the current reply so far."""
        return self._run.n_decoded if self._run else 0

    async def run(self, engine: Engine, turn: asyncio.Lock, totals: Totals) -> str:
        """Run the tasks, whose own steps wait for their `turn`, and count them. Return the text of a single reply that
        ended by itself, else "". Raises what the engine raises.
        """
        text = ""
        for task in self._tasks:
            if self.is_cancelled:
                raise self._reason or client_gone()
            self.task, self._run = task, (run := TaskRun(task, engine, self._pass_on))
            last = await (run.steps(task, turn) if isinstance(task, StepTask) else run.reply(self._asked(task)))
            now = time.perf_counter()
            began_at = run.began_at or now
            totals.count(last, 0.0 if self._n_finished else began_at - self._submitted_at, now - began_at)
            self._n_finished += 1
            text = run.text if last.finish_reason == "stop" and len(self._tasks) == 1 else ""
            self._pass_on(last)
        return text

    def _asked(self, task: CompletionTask) -> Ask:
        """Return what to ask: only the first task of a request may have to wait, and only one alone is short."""
        is_short = task.ask.is_short and len(self._tasks) == 1
        return replace(task.ask, is_short=is_short, is_admitted=self._n_finished > 0)

    def _pass_on(self, chunk: Chunk) -> None:
        if is_empty(chunk):
            return
        if not self._has_started:
            self._has_started = True
            self.emit(None)
        self.emit(chunk)

    def emit(self, event: Chunk | Exception | None) -> None:
        """Put a chunk or an error into the reader's queue. None means that the engine has started."""
        self._events.put_nowait(event)

    def cancel(self, reason: Exception | None = None) -> None:
        """Cancel generation, on any thread: nobody reads the rest, or `reason` is raised to the reader."""
        self.is_cancelled, self._reason = True, reason
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._stop, reason)

    def _stop(self, reason: Exception | None) -> None:
        if self._run is not None and (reason or not self.has_begun):
            self._run.fail(reason or client_gone())
        elif self._run is not None:
            self._run.cancel()

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
        n_left, clock = len(self._tasks), self._loop.time
        deadline = None if interval is None else clock() + interval
        while n_left:
            chunks, failed = await self._next(deadline)
            self.counts.add(chunks)
            n_left -= sum(chunk.finish_reason is not None for chunk in chunks)
            if interval and (not chunks or any(chunk.tokens for chunk in chunks)):
                deadline = clock() + interval
            if chunks or not failed:
                yield chunks
            if failed and n_left:
                raise failed

    async def _next(self, deadline: float | None) -> tuple[list[Chunk], Exception | None]:
        """Wait for a chunk until the deadline. Return all available chunks, and the error that follows them, if any."""
        chunks, first = list[Chunk](), None
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                first = await self._events.get()
        for event in [first, *self._available()]:
            if isinstance(event, Exception):
                return chunks, event
            if event is not None:
                chunks.append(event)
        return chunks, None

    def _available(self) -> Iterator[Chunk | Exception | None]:
        while not self._events.empty():
            yield self._events.get_nowait()
