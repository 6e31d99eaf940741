"""Runs the engine on its own thread, with the running tasks and the queue of waiting ones.

Must not know a protocol.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from time import perf_counter, time

from app.server.errors import ApiError, as_api_error
from app.server.metrics import Totals
from app.server.policy import DEFAULT_POLICY, ServerPolicy
from app.server.scheduled_task import ScheduledTask
from runtime.core.errors import SlipstreamError
from runtime.engine import Chunk, Engine

log = logging.getLogger(__name__)
OpenEngine = Callable[[Callable[[str, float], bool]], Engine]  # takes the progress callback
IDLE = 5.0  # seconds without work after which the engine checks the free memory
MAX_RETRY = 60  # seconds; the longest Retry-After of a refused request


class Worker:
    """Loads the engine, then runs the submitted tasks: up to `max_active` long ones and one short one at a time."""

    def __init__(
        self,
        open_engine: OpenEngine,
        max_waiting: int,
        on_loaded: Callable[[], None],
        on_failed: Callable[[Exception], None],
        max_active: int = 1,
        policy: ServerPolicy = DEFAULT_POLICY,
    ) -> None:
        self.policy, self._numbers = policy, count()
        self.totals, self.created_at = Totals(), int(time())
        self._open_engine, self._on_loaded, self._on_failed = open_engine, on_loaded, on_failed
        self._max_waiting, self._waiting = max_waiting, list[ScheduledTask]()
        self.max_active, self._active = max_active, list[ScheduledTask]()
        self._changed = threading.Condition()
        self._engine: Engine | None = None
        self._is_stopping = False
        self._may_close = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine")

    @property
    def engine(self) -> Engine:
        """The engine. Raises ApiError while it is not loaded or the server is stopping."""
        if self._engine is None or self._is_stopping:
            raise self._unavailable()
        return self._engine

    @property
    def is_loaded(self) -> bool:
        """Whether the engine has been loaded."""
        return self._engine is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is shutting down."""
        return self._is_stopping

    @property
    def model(self) -> str:
        """The name of the served pair. "" while nothing is loaded."""
        return self._engine.pair.name if self._engine else ""

    @property
    def n_waiting(self) -> int:
        """The number of tasks in the queue."""
        return len(self._waiting)

    @property
    def active(self) -> list[ScheduledTask]:
        """The running tasks in order of submission."""
        with self._changed:
            return sorted(self._active, key=lambda task: task.number)

    @property
    def n_active(self) -> int:
        """The number of running tasks."""
        return len(self._active)

    @property
    def is_answering(self) -> bool:
        """Whether any task is running."""
        return self.n_active > 0

    @property
    def n_held(self) -> int:
        """The number of conversations in the target's cache. 0 while nothing is loaded."""
        return self._engine.n_held if self._engine else 0

    @property
    def memory_level(self) -> str:
        """The level of memory pressure. "" while nothing is loaded."""
        return self._engine.memory_level if self._engine else ""

    def start(self) -> None:
        """Start loading the engine."""
        self._thread.start()

    def submit(self, task: ScheduledTask) -> None:
        """Put a task into the queue. Raises ApiError when the queue is full or there is no engine."""
        with self._changed:
            self._waiting = [other for other in self._waiting if not other.is_cancelled]
            if self._engine is None or self._is_stopping:
                raise self._unavailable()
            if len(self._waiting) >= self._max_waiting + self._n_free(
                self._engine, task
            ):  # tasks that can start do not wait
                seconds = min(MAX_RETRY, math.ceil(self.totals.seconds_per_reply * len(self._waiting)) + 1)
                raise ApiError(
                    429,
                    f"{len(self._waiting)} requests are waiting already. Try again in {seconds} s.",
                    code="queue_full",
                    retry_after=seconds,
                )
            task.number = next(self._numbers)
            self._waiting.append(task)
            self._changed.notify()

    def _n_free(self, engine: Engine, task: ScheduledTask) -> int:
        """Return how many tasks of this kind could start now: one short task and `max_active` long ones, or a single
        task where the engine holds only one sequence.
        """
        if engine.holds_one:
            return 0 if self._active else 1
        n_alike = sum(other.is_short == task.is_short for other in self._active)
        return max(0, (1 if task.is_short else self.max_active) - n_alike)

    def stop(self, ends_active: bool = True) -> None:
        """Refuse new tasks and end the waiting ones with an error, or all of them. Returns immediately."""
        with self._changed:
            self._is_stopping = True
            for task in self._waiting:
                task.emit(self._unavailable())
            self._waiting.clear()
            for task in self._active if ends_active else ():
                task.cancel(self._unavailable())
            self._changed.notify()

    def join(self) -> None:
        """Let the engine be closed, since nobody uses it any more, and wait for that."""
        self._may_close.set()
        self._thread.join()

    def _unavailable(self) -> ApiError:
        if self._is_stopping:
            return ApiError(
                503,
                "The server is shutting down. Start it again with `slipstream serve`.",
                code="shutting_down",
                retry_after=5,
            )
        return ApiError(503, "The model is still being loaded. Try again in a moment.", code="loading", retry_after=1)

    def _run(self) -> None:
        try:
            engine = self._open_engine(lambda what, share: not self._is_stopping)
        except KeyboardInterrupt:  # stopped while loading
            return
        except Exception as error:
            self._on_failed(error)
            return
        try:
            self._run_tasks(engine)
        except Exception as error:  # not from a task: the engine is lost, and no client should wait for it
            self._abandon()
            self._on_failed(error)
        finally:
            self._may_close.wait()
            engine.close()

    def _run_tasks(self, engine: Engine) -> None:
        """Run tasks until the worker is stopped and every task has ended."""
        with self._changed:
            self._engine = engine
        self._on_loaded()
        while self._active or not self._is_stopping:
            self._admit(engine)
            if self._active:
                self._advance(engine)
            elif not self._is_stopping:
                engine.tend()

    def _abandon(self) -> None:
        self.stop()
        for task in self._active:
            task.emit(self._unavailable())
        self._active.clear()

    def _admit(self, engine: Engine) -> None:
        """Start the tasks that can start, short ones first. Without any task, wait up to IDLE seconds for one."""
        with self._changed:
            if not self._active:
                self._changed.wait_for(lambda: self._is_stopping or self._waiting, IDLE)
            self._waiting = [task for task in self._waiting if not task.is_cancelled]
            started = list[ScheduledTask]()
            for task in sorted(self._waiting, key=lambda task: not task.is_short):
                if self._n_free(engine, task):
                    self._waiting.remove(task)
                    self._active.append(task)
                    started.append(task)
        for task in started:
            self._run_guarded(task, lambda task=task: task.begin(engine))  # type: ignore[misc]

    def _advance(self, engine: Engine) -> None:
        """Run one engine step, and one step of each task that runs its own steps. Pass on the chunks."""
        for task in self.active:
            if task.runs_by_itself:
                self._take(task, task.step, engine)
            elif task.reply is not None and task.should_stop():
                engine.cancel(task.reply)
        replies = {task.reply: task for task in self.active if task.reply is not None}
        for number, output in engine.step() if replies else ():
            if number in replies:
                self._take(replies[number], partial(take_or_raise, replies[number], output), engine)

    def _take(self, task: ScheduledTask, step: Callable[[], Chunk | None], engine: Engine) -> None:
        """Run one step of a task, and begin the request's next task after the last chunk of this one."""
        last = self._run_guarded(task, step)
        if last is None:
            return
        self.totals.count(last, task.queue_seconds, perf_counter() - task.began_at)
        task.emit(last)
        if task.is_done:
            self._end(task)
        else:
            self._run_guarded(task, lambda: task.begin(engine))

    def _run_guarded(self, task: ScheduledTask, do: Callable[[], Chunk | None]) -> Chunk | None:
        """Call `do` for a task and end the task if that fails, so that the server outlives a failed reply."""
        try:
            return do()
        except Exception as error:
            if not isinstance(error, (ApiError, SlipstreamError)):
                log.exception("A reply failed.")
            task.emit(as_api_error(error, task.task.prompt_field))
            self._end(task)
            return None

    def _end(self, task: ScheduledTask) -> None:
        if self._engine is not None and task.reply is not None:  # nobody reads the rest of the reply
            self._engine.end(task.reply)
        with self._changed:
            self._active.remove(task)


def take_or_raise(task: ScheduledTask, output: Chunk | Exception) -> Chunk | None:
    """Hand a task the next chunk of its reply. Raises it if it is an error."""
    if isinstance(output, Exception):
        raise output
    return task.take(output)
