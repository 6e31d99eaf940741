"""The engine on a thread of its own, the replies that it makes in turns, and the line of requests before it.

Knows no protocol.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from time import perf_counter

from app.server.errors import ApiError, as_api_error
from app.server.job import Job
from app.server.metrics import Totals
from runtime.core.errors import SlipstreamError
from runtime.engine import Engine

log = logging.getLogger(__name__)
OpenEngine = Callable[[Callable[[str, float], bool]], Engine]  # given what to report progress to
IDLE = 5.0  # seconds after which an engine without work looks at what memory is free
LEAD = 1.0  # seconds that short completions may have before they share the time with chats
LONGEST_RETRY = 60  # seconds after which a refused client should have tried again


class Worker:
    """Loads the engine, then answers the jobs that wait: up to `max_active` in turns, a short one before all."""

    def __init__(
        self,
        open_engine: OpenEngine,
        max_waiting: int,
        on_loaded: Callable[[], None],
        on_failed: Callable[[Exception], None],
        max_active: int = 1,
    ) -> None:
        self.totals = Totals()
        self._open_engine, self._on_loaded, self._on_failed = open_engine, on_loaded, on_failed
        self._max_waiting, self._waiting = max_waiting, list[Job]()
        self.max_active, self._active = max_active, list[Job]()  # the one whose turn was longest ago is first
        self._changed = threading.Condition()
        self._engine: Engine | None = None
        self._lead = 0.0  # seconds that short ones went on while long ones waited, beyond what those had since
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
        """Is there an engine?"""
        return self._engine is not None

    @property
    def is_stopping(self) -> bool:
        """Is it to end?"""
        return self._is_stopping

    @property
    def model(self) -> str:
        """The served pair; "" while nothing is loaded."""
        return self._engine.pair.name if self._engine else ""

    @property
    def n_waiting(self) -> int:
        """Requests that were accepted and not begun."""
        return len(self._waiting)

    @property
    def n_active(self) -> int:
        """Replies that are being made."""
        return len(self._active)

    @property
    def is_answering(self) -> bool:
        """Is a reply being made?"""
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

    def submit(self, job: Job) -> None:
        """Puts the job in line. Raises ApiError when the line is full or there is no engine."""
        with self._changed:
            self._waiting = [other for other in self._waiting if not other.is_cancelled]
            if self._engine is None or self._is_stopping:
                raise self._unavailable()
            if len(self._waiting) >= self._max_waiting + self._n_free(self._engine, job):  # who can begin does not wait
                seconds = min(LONGEST_RETRY, math.ceil(self.totals.seconds_per_reply * len(self._waiting)) + 1)
                raise ApiError(
                    429,
                    f"{len(self._waiting)} requests wait already. Try again in {seconds} s.",
                    code="queue_full",
                    retry_after=seconds,
                )
            self._waiting.append(job)
            self._changed.notify()

    def _n_free(self, engine: Engine, job: Job) -> int:
        """How many replies like this one could begin now: one short one and some long ones, or a single one where turns
        cannot be taken.
        """
        if math.isinf(engine.turn_seconds):
            return 0 if self._active else 1
        same = sum(other.ask.is_short == job.ask.is_short for other in self._active)
        return max(0, (1 if job.ask.is_short else self.max_active) - same)

    def stop(self) -> None:
        """Every reply and request ends with an error; returns at once."""
        with self._changed:
            self._is_stopping = True
            for job in self._waiting:
                job.post(self._unavailable())
            self._waiting.clear()
            for job in self._active:
                job.cancel(self._unavailable())
            self._changed.notify()

    def join(self) -> None:
        """Until the engine is closed, which nobody asks anything any more."""
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
            self._answer(engine)
        except Exception as error:  # of no reply: the engine is lost, and nobody should wait for it
            self._abandon()
            self._on_failed(error)
        finally:
            self._may_close.wait()
            engine.close()

    def _answer(self, engine: Engine) -> None:
        """Until it is to stop and every reply has ended."""
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
        for job in self._active:
            job.post(self._unavailable())
        self._active.clear()

    def _admit(self, engine: Engine) -> None:
        """Begins what can begin, short ones first; waits a while for something to do where there is nothing."""
        with self._changed:
            if not self._active:
                self._changed.wait_for(lambda: self._is_stopping or self._waiting, IDLE)
            self._waiting = [job for job in self._waiting if not job.is_cancelled]
            for job in sorted(self._waiting, key=lambda job: not job.ask.is_short):
                if self._n_free(engine, job):
                    self._waiting.remove(job)
                    self._active.append(job)

    def _take_turn(self, engine: Engine) -> None:
        """One reply goes on, by a step at least, for as long as changing to another would cost too much."""
        job = self._next()
        engine.share(len(self._active) - 1)
        began, last = perf_counter(), self._step(job, engine)
        while (
            not last and len(self._active) > 1 and perf_counter() - began < engine.turn_seconds and job is self._next()
        ):
            last = self._step(job, engine)
        self._lead = self._lead_after(job, perf_counter() - began)
        with self._changed:
            self._active.remove(job)
            if not last:
                self._active.append(job)

    def _next(self) -> Job:
        """Whose turn it is: that of one that is to end, of a short one unless those had too much, of who has waited
        longest.
        """
        with self._changed:
            return min(self._active, key=lambda job: (not job.is_over(), job.ask.is_short == (self._lead > LEAD)))

    def _lead_after(self, job: Job, seconds: float) -> float:
        """A turn of a short one adds to the lead, one of a long one takes from it; where no long one waits there is
        none.
        """
        if all(other.ask.is_short for other in self._active):
            return 0.0
        return max(0.0, self._lead + (seconds if job.ask.is_short else -seconds))

    def _step(self, job: Job, engine: Engine) -> bool:
        """The next piece of a reply; was it the last?"""
        try:
            last = job.step(engine)
        except (ApiError, SlipstreamError) as error:
            job.post(as_api_error(error, job.ask.text_field))
        except Exception as error:  # the server outlives a reply
            log.exception("A reply failed.")
            job.post(as_api_error(error, job.ask.text_field))
        else:
            if last is None:
                return False
            self.totals.count(last, job.waited, perf_counter() - job.came - job.waited)
            job.post(last)
        return True
