"""One task on its way through the engine: begun, read to its end, stopped when its time is over. Must not know HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from app.server.task import EngineTask
from runtime.engine import Chunk, Engine
from runtime.engine.engine import Ask
from runtime.engine.streams import PrefillReport


class TaskRun:
    """A task that is run on the event loop. It is a reply of the engine, or runs its own steps in threads."""

    def __init__(self, task: EngineTask, engine: Engine) -> None:
        self.task, self._engine, self.n_decoded = task, engine, 0  # tokens of the reply
        self.began_at: float | None = None  # when the reply or the first step began
        self._reply: int | None = None  # the engine's number of the reply
        self._steps: Iterator[Chunk] | None = None
        self._came: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self._is_cancelled = self._is_prefilled = False
        self._prefill = PrefillReport(self._on_prefill)
        self._deadline: float | None = None  # of generating
        self.text = ""  # of the reply

    async def finish(self, adapt: Callable[[Ask], Ask], turn: asyncio.Lock, emit: Callable[[Chunk], None]) -> Chunk:
        """Run the task, pass its chunks on to `emit`, and return the last one. The engine is asked what `adapt` makes
        of the task; own steps wait for their `turn`. Raises what the engine raises, and what `fail` is given.
        """
        try:
            self._begin(adapt, asyncio.get_running_loop())
            while (chunk := await self._next(turn)).finish_reason is None:
                emit(chunk)
                if self._is_over and self._reply is not None:
                    self._engine.cancel(self._reply)
            is_late = chunk.finish_reason == "cancelled" and not self._is_cancelled
            return replace(chunk, finish_reason="length") if is_late else chunk
        finally:
            if self._reply is not None:  # nobody reads the rest, if there is any
                self._engine.end(self._reply)

    def _begin(self, adapt: Callable[[Ask], Ask], loop: asyncio.AbstractEventLoop) -> None:
        def sink(output: Chunk | Exception) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(self._came.put_nowait, output)

        work = self.task.work(self._engine, lambda: self._is_cancelled)
        if isinstance(work, Ask):
            self._reply = self._engine.add(adapt(work), sink)
        else:
            self._steps = work

    async def _next(self, turn: asyncio.Lock) -> Chunk:
        """Return the next chunk. Raises an error that comes instead."""
        if self._steps is not None:
            async with turn:
                if self._came.empty():
                    self.began_at = self.began_at or time.perf_counter()
                    return await run_in_threadpool(next, self._steps)
        came = await self._came.get()
        if isinstance(came, Exception):
            raise came
        self.began_at = self.began_at or time.perf_counter()
        if not is_empty(came):
            self._prefill.take(came)
        self.n_decoded += len(came.tokens)
        self.text += came.text
        return came

    def cancel(self) -> None:
        """Have the task end within a step."""
        self._is_cancelled = True
        if self._reply is not None:
            self._engine.cancel(self._reply)

    def fail(self, error: Exception) -> None:
        """End the task with an error."""
        self._came.put_nowait(error)

    def _on_prefill(self, done: int, total: int) -> None:
        if done < total:
            return
        self._is_prefilled = True
        if self.task.max_decode_seconds is not None:
            self._deadline = time.perf_counter() + self.task.max_decode_seconds

    @property
    def _is_over(self) -> bool:
        """Whether its time is over and a line is complete, or a prefill-only prompt has been read."""
        is_late = self._deadline is not None and time.perf_counter() >= self._deadline and "\n" in self.text
        return is_late or (self._is_prefilled and self.task.max_tokens == 0)


def is_empty(chunk: Chunk) -> bool:
    """Return whether a chunk tells nothing but that the reply runs."""
    return not (chunk.tokens or chunk.text or chunk.stats or chunk.finish_reason)
