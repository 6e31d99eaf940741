"""One running task: the progress of its reply, and when it should end. Must not know HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from app.server.task import EngineTask
from runtime.engine import Chunk, Engine
from runtime.engine.streams import PrefillReport


class TaskRun:
    """A task that has begun. It waits for a reply of the engine, or runs its own `steps`."""

    def __init__(self, task: EngineTask) -> None:
        self.task, self.began_at, self.n_decoded = task, time.perf_counter(), 0  # n_decoded: tokens of the reply
        self.reply: int | None = None  # the engine's number of the reply
        self.steps: Iterator[Chunk] | None = None
        self._prefill = PrefillReport(self._on_prefill)
        self._is_prefilled = False
        self._deadline: float | None = None  # of generating
        self._has_line = False  # whether the reply has a complete line

    def begin(self, engine: Engine, should_stop: Callable[[], bool]) -> None:
        """Begin the task. Raises what the engine raises."""
        begun = self.task.begin(engine, should_stop)
        if isinstance(begun, int):
            self.reply = begun
        else:
            self.steps = begun

    def see(self, chunk: Chunk) -> None:
        """Record a chunk."""
        self._prefill.take(chunk)
        self.n_decoded += len(chunk.tokens)
        self._has_line |= "\n" in chunk.text

    def _on_prefill(self, done: int, total: int) -> None:
        if done < total:
            return
        self._is_prefilled = True
        if self.task.max_decode_seconds is not None:
            self._deadline = time.perf_counter() + self.task.max_decode_seconds

    @property
    def should_stop(self) -> bool:
        """Whether its time is over and a line is complete, or a prefill-only prompt has been read."""
        is_late = self._has_line and self._deadline is not None and time.perf_counter() >= self._deadline
        return is_late or (self._is_prefilled and self.task.max_tokens == 0)
