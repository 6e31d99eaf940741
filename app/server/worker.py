"""The engine on a thread of its own, and the line of requests before it. One reply at a time; knows no protocol."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import perf_counter

from app.server.errors import ApiError, as_api_error
from app.server.job import Job
from app.server.metrics import Totals
from runtime.engine import Engine
from runtime.errors import SlipstreamError

log = logging.getLogger(__name__)
OpenEngine = Callable[[Callable[[str, float], bool]], Engine]  # given what to report progress to
IDLE = 5.0  # seconds after which an engine without work looks at what memory is free
LONGEST_RETRY = 60  # seconds after which a refused client should have tried again


class Worker:
    """Loads the engine, then answers the jobs that wait: short ones first, else in the order they came."""

    def __init__(self, open_engine: OpenEngine, max_waiting: int, on_loaded: Callable[[], None], on_failed: Callable[[Exception], None]) -> None:
        self.totals = Totals()
        self._open_engine, self._on_loaded, self._on_failed = open_engine, on_loaded, on_failed
        self._max_waiting, self._waiting = max_waiting, list[Job]()
        self._changed = threading.Condition()
        self._engine: Engine | None = None
        self._current: Job | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="engine")

    @property
    def engine(self) -> Engine:
        """Raises ApiError while there is none."""
        if self._engine is None or self._is_stopping:
            raise self._unavailable()
        return self._engine

    @property
    def n_waiting(self) -> int:
        """Requests that were accepted and not begun."""
        return len(self._waiting)

    @property
    def is_answering(self) -> bool:
        """Is a reply being made?"""
        return self._current is not None

    @property
    def memory_level(self) -> str:
        """How short memory is; "" while nothing is loaded."""
        return self._engine.memory_level if self._engine else ""

    def start(self) -> None:
        """Begins to load."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Puts the job in line. Raises ApiError when the line is full or there is no engine."""
        with self._changed:
            self._waiting = [other for other in self._waiting if not other.is_cancelled]
            if self._engine is None or self._is_stopping:
                raise self._unavailable()
            if len(self._waiting) >= self._max_waiting + (self._current is None):  # without a reply under way, the first does not wait
                seconds = min(LONGEST_RETRY, math.ceil(self.totals.seconds_per_reply * len(self._waiting)) + 1)
                raise ApiError(429, f"{len(self._waiting)} requests wait already. Try again in {seconds} s.", code="queue_full", retry_after=seconds)
            self._waiting.append(job)
            self._changed.notify()

    def stop(self) -> None:
        """Every reply and request ends with an error; returns at once."""
        with self._changed:
            self._is_stopping = True
            for job in self._waiting:
                job.post(self._unavailable())
            self._waiting.clear()
            if self._current is not None:
                self._current.cancel(self._unavailable())
            self._changed.notify()

    def join(self) -> None:
        """Until the engine is closed."""
        self._thread.join()

    def _unavailable(self) -> ApiError:
        if self._is_stopping:
            return ApiError(503, "The server is shutting down. Start it again with `slipstream serve`.", code="shutting_down", retry_after=5)
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
            with self._changed:
                self._engine = engine
            self._on_loaded()
            while not self._is_stopping:
                if (job := self._next()) is not None:
                    self._answer(job, engine)
                else:
                    engine.tend()
        finally:
            engine.close()

    def _next(self) -> Job | None:
        """Waits for a job; None when none came for a while, or when it is time to stop."""
        with self._changed:
            self._current = None
            self._changed.wait_for(lambda: self._is_stopping or self._waiting, IDLE)
            self._waiting = [job for job in self._waiting if not job.is_cancelled]
            if self._is_stopping or not self._waiting:
                return None
            self._current = next((job for job in self._waiting if job.ask.is_short), self._waiting[0])
            self._waiting.remove(self._current)
            return self._current

    def _answer(self, job: Job, engine: Engine) -> None:
        began = perf_counter()
        try:
            last = job.run(engine)
        except (ApiError, SlipstreamError) as error:
            job.post(as_api_error(error))
        except Exception as error:  # the server outlives a reply
            log.exception("A reply failed.")
            job.post(as_api_error(error))
        else:
            self.totals.count(last, began - job.came, perf_counter() - began)
            job.post(last)
