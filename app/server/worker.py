"""The engine on a thread of its own, the tasks that it runs in turns, and the queue of those that wait.

Must not know a protocol.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from itertools import count
from time import perf_counter, time

from app.server.errors import ApiError, as_api_error
from app.server.metrics import Totals
from app.server.scheduled_task import ScheduledTask
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine

log = logging.getLogger(__name__)
OpenEngine = Callable[[Callable[[str, float], bool]], Engine]  # given what to report progress to
IDLE = 5.0  # seconds after which an engine without work looks at what memory is free
MAX_LEAD = 1.0  # seconds that short tasks may have before they share the time with long ones
MAX_RETRY = 60  # seconds after which a refused client should have tried again


class Worker:
    """Loads the engine, then runs the tasks that are submitted: up to `max_active` in turns, a short one before all."""

    def __init__(
        self,
        open_engine: OpenEngine,
        max_waiting: int,
        on_loaded: Callable[[], None],
        on_failed: Callable[[Exception], None],
        max_active: int = 1,
        shows_slots: bool = False,
    ) -> None:
        self.shows_slots, self._numbers = shows_slots, count()
        self.aliases: tuple[str, ...] = ()  # names that clients may also know the model by
        self.totals, self.created_at = Totals(), int(time())
        self._open_engine, self._on_loaded, self._on_failed = open_engine, on_loaded, on_failed
        self._max_waiting, self._waiting = max_waiting, list[ScheduledTask]()
        self.max_active, self._active = max_active, list[ScheduledTask]()  # the one that has waited longest is first
        self._changed = threading.Condition()
        self._engine: Engine | None = None
        self._lead = 0.0  # seconds that short tasks had while long ones waited, less those that long ones had since
        self._is_stopping = False
        self._may_close = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine")

    @property
    def engine(self) -> Engine:
        """Raises ApiError while there is none."""
        if self._engine is None or self._is_stopping:
            raise self._unavailable()
        return self._engine

    @property
    def is_loaded(self) -> bool:
        """Has the engine been loaded?"""
        return self._engine is not None

    @property
    def is_stopping(self) -> bool:
        """Has it been told to stop?"""
        return self._is_stopping

    @property
    def model(self) -> str:
        """The served pair; "" while nothing is loaded."""
        return self._engine.pair.name if self._engine else ""

    @property
    def n_waiting(self) -> int:
        """Tasks in the queue."""
        return len(self._waiting)

    @property
    def active(self) -> list[ScheduledTask]:
        """The tasks that run in turns, in the order in which they came."""
        with self._changed:
            return sorted(self._active, key=lambda task: task.number)

    @property
    def n_active(self) -> int:
        """Tasks that run in turns."""
        return len(self._active)

    @property
    def is_answering(self) -> bool:
        """Does any task run?"""
        return self.n_active > 0

    @property
    def n_held(self) -> int:
        """Conversations in the target's cache; 0 while nothing is loaded."""
        return self._engine.n_held if self._engine else 0

    @property
    def memory_level(self) -> str:
        """How short memory is; "" while nothing is loaded."""
        return self._engine.memory_level if self._engine else ""

    def start(self) -> None:
        """Begins to load."""
        self._thread.start()

    def submit(self, task: ScheduledTask) -> None:
        """Puts a task into the queue. Raises ApiError when the queue is full or there is no engine."""
        with self._changed:
            self._waiting = [other for other in self._waiting if not other.is_cancelled]
            if self._engine is None or self._is_stopping:
                raise self._unavailable()
            if len(self._waiting) >= self._max_waiting + self._n_free(
                self._engine, task
            ):  # who can start does not wait
                seconds = min(MAX_RETRY, math.ceil(self.totals.seconds_per_reply * len(self._waiting)) + 1)
                raise ApiError(
                    429,
                    f"{len(self._waiting)} requests wait already. Try again in {seconds} s.",
                    code="queue_full",
                    retry_after=seconds,
                )
            task.number = next(self._numbers)
            self._waiting.append(task)
            self._engine.let_in()
            self._changed.notify()

    def _n_free(self, engine: Engine, task: ScheduledTask) -> int:
        """How many tasks like this one could start now: one short and some long ones, or a single one where the engine
        cannot take turns.
        """
        if math.isinf(engine.turn_seconds):
            return 0 if self._active else 1
        n_alike = sum(other.is_short == task.is_short for other in self._active)
        return max(0, (1 if task.is_short else self.max_active) - n_alike)

    def stop(self, ends_active: bool = True) -> None:
        """Takes no further task, and ends those that wait, or all, with an error; returns at once."""
        with self._changed:
            self._is_stopping = True
            for task in self._waiting:
                task.emit(self._unavailable())
            self._waiting.clear()
            for task in self._active if ends_active else ():
                task.cancel(self._unavailable())
            self._changed.notify()

    def join(self) -> None:
        """Lets the engine be closed, as nobody asks it anything any more, and waits for that."""
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
        except Exception as error:  # of no task: the engine is lost, and nobody should wait for it
            self._abandon()
            self._on_failed(error)
        finally:
            self._may_close.wait()
            engine.close()

    def _run_tasks(self, engine: Engine) -> None:
        """Runs tasks until it is told to stop and every task has ended."""
        with self._changed:
            self._engine = engine
        self._on_loaded()
        while self._active or not self._is_stopping:
            self._admit(engine)
            if self._active:
                self._take_turn(engine)
            elif not self._is_stopping:
                engine.tend()

    def _abandon(self) -> None:
        self.stop()
        for task in self._active:
            task.emit(self._unavailable())
        self._active.clear()

    def _admit(self, engine: Engine) -> None:
        """Starts what can start, short tasks first; waits a while for something to do where there is nothing."""
        with self._changed:
            if not self._active:
                self._changed.wait_for(lambda: self._is_stopping or self._waiting, IDLE)
            self._waiting = [task for task in self._waiting if not task.is_cancelled]
            for task in sorted(self._waiting, key=lambda task: not task.is_short):
                if self._n_free(engine, task):
                    self._waiting.remove(task)
                    self._active.append(task)

    def _take_turn(self, engine: Engine) -> None:
        """Runs one task, for a step at least and for as long as changing to another would cost too much."""
        task = self._next(engine)
        engine.share(len(self._active) - 1)
        began, is_done = perf_counter(), self._step(task, engine)
        while not is_done and self._keeps_turn(task, perf_counter() - began, engine):
            is_done = self._step(task, engine)
        self._lead = self._lead_after(task, perf_counter() - began)
        with self._changed:
            self._active.remove(task)
            if not is_done:
                self._active.append(task)

    def _keeps_turn(self, task: ScheduledTask, seconds: float, engine: Engine) -> bool:
        """May a turn that has taken so long go on? A task without others goes on until somebody comes, who is let in
        between turns.
        """
        if len(self._active) == 1:
            return not self._waiting and not self._is_stopping
        return seconds < engine.turn_seconds and task is self._next(engine)

    def _next(self, engine: Engine) -> ScheduledTask:
        """The task whose turn it is: one that should stop; else, where all share passes, one still to begin, and else a
        short one unless those had too much; else the one that has waited longest.
        """
        is_shared, has_lead = engine.facts.shares_passes, self._lead > MAX_LEAD

        def is_later(task: ScheduledTask) -> bool:
            return task.has_begun if is_shared else task.is_short == has_lead

        with self._changed:
            return min(self._active, key=lambda task: (not task.should_stop(), is_later(task)))

    def _lead_after(self, task: ScheduledTask, seconds: float) -> float:
        """The lead after a turn: a short task's adds to it, a long one's takes from it, down to none where no long task
        waits.
        """
        if all(other.is_short for other in self._active):
            return 0.0
        return max(0.0, self._lead + (seconds if task.is_short else -seconds))

    def _step(self, task: ScheduledTask, engine: Engine) -> bool:
        """Runs a task for a step; was it the last?"""
        try:
            last = task.step(engine)
        except Exception as error:  # the server outlives a reply
            if not isinstance(error, (ApiError, SlipstreamError)):
                log.exception("A reply failed.")
            task.emit(as_api_error(error, task.task.prompt_field))
            return True
        if last is None:
            return False
        self.totals.count(last, task.queue_seconds, perf_counter() - task.began_at)
        task.emit(last)
        return task.is_done
