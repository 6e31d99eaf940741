"""The engine behind a server: opened in a thread, with the requests that it answers. Must not know a protocol."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from itertools import count

from starlette.concurrency import run_in_threadpool

from app.server.errors import ApiError, as_api_error
from app.server.metrics import Totals
from app.server.policy import DEFAULT_POLICY, ServerPolicy
from app.server.scheduled_task import ScheduledTask
from runtime.core.errors import BusyError, SlipstreamError
from runtime.engine import Engine
from runtime.engine.engine import Ask
from runtime.engine.output import Status

log = logging.getLogger(__name__)
Following = Callable[[str], Ask | None]  # from a reply to what may be read ahead of the request after it
OpenEngine = Callable[[Callable[[str, float], bool]], Engine]  # takes the progress callback
MAX_RETRY = 60  # seconds; the longest Retry-After of a refused request


class ServedEngine:
    """An engine that is opened while the server runs already. The engine decides who waits and who is refused."""

    def __init__(
        self,
        open_engine: OpenEngine,
        on_loaded: Callable[[Engine], None],
        on_failed: Callable[[Exception], None],
        policy: ServerPolicy = DEFAULT_POLICY,
        totals: Totals | None = None,
    ) -> None:
        self.policy, self.totals = policy, totals or Totals()
        self._open_engine, self._on_loaded, self._on_failed = open_engine, on_loaded, on_failed
        self._numbers, self._requests = count(), dict[ScheduledTask, asyncio.Task[None]]()
        self._turn = asyncio.Lock()  # of steps that are no reply's
        self._engine: Engine | None = None
        self._ahead: int | None = None  # number of what is read ahead
        self.is_stopping = False
        self._thread = threading.Thread(target=self._open, name="engine")

    @property
    def engine(self) -> Engine:
        """The engine. Raises ApiError while it is not loaded or the server is stopping."""
        self.check()
        assert self._engine is not None
        return self._engine

    def check(self) -> None:
        """Raise ApiError while the engine is not loaded or the server is stopping."""
        if self._engine is None or self.is_stopping:
            raise self._unavailable()

    @property
    def is_loaded(self) -> bool:
        """Whether the engine has been loaded."""
        return self._engine is not None

    @property
    def model(self) -> str:
        """The name of the served pair. "" while nothing is loaded."""
        return self._engine.pair.name if self._engine else ""

    @property
    def n_slots(self) -> int:
        """The number of long requests that run at the same time."""
        return self.engine.limits.max_running or 1

    @property
    def active(self) -> list[ScheduledTask]:
        """The running requests in order of submission."""
        return [request for request in list(self._requests) if request.has_begun]

    @property
    def is_free(self) -> bool:
        """Whether there is no request."""
        return not self._requests

    @property
    def n_active(self) -> int:
        """The number of running requests."""
        return len(self.active)

    @property
    def n_waiting(self) -> int:
        """The number of requests that wait to run."""
        return len(self._requests) - self.n_active

    @property
    def is_answering(self) -> bool:
        """Whether any request is running."""
        return self.n_active > 0

    @property
    def status(self) -> Status:
        """The engine's state, without a level of memory pressure while nothing is loaded."""
        return self._engine.status if self._engine else Status(memory_level="")

    def start(self) -> None:
        """Start loading the engine."""
        self._thread.start()

    def submit(self, request: ScheduledTask, following: Following | None = None) -> None:
        """Run a request on its event loop; what follows its reply is read ahead. Raises ApiError when there is no
        engine, or too much other work than replies waits.
        """
        engine = self.engine
        n_alike, most = sum(not each.is_reply for each in self._requests), engine.limits.max_waiting
        if not request.is_reply and most is not None and n_alike + engine.status.n_waiting > most:
            raise self._refusal(n_alike + engine.status.n_waiting)
        request.number = next(self._numbers)
        self._requests[request] = asyncio.create_task(self._run(request, engine, following))

    async def _run(self, request: ScheduledTask, engine: Engine, following: Following | None) -> None:
        """Run a request. An error goes to its reader, and the server outlives it."""
        text = ""
        try:
            text = await request.run(engine, self._turn, self.totals)
        except BusyError as error:
            request.emit(self._refusal(error.n_waiting))
        except Exception as error:
            if not isinstance(error, (ApiError, SlipstreamError)):
                log.exception("A reply failed.")
            request.emit(as_api_error(error, request.task.prompt_field))
        finally:
            del self._requests[request]
        if text and following and engine.facts.reads_ahead and not (self._requests or self.is_stopping):
            await run_in_threadpool(self._read_ahead, engine, partial(following, text))

    def _read_ahead(self, engine: Engine, following: Callable[[], Ask | None]) -> None:
        """Let the engine read what the next request will begin with, until any other comes."""
        try:
            if ask := following():
                self._ahead = engine.add(ask, lambda output: None)
        except Exception:  # nobody waits for it
            log.debug("Nothing is read ahead.", exc_info=True)

    def stop_reading_ahead(self) -> None:
        """End what is read ahead, because another model is needed."""
        if self._engine is not None and self._ahead is not None:
            self._engine.cancel(self._ahead)
            self._ahead = None

    def stop(self, ends_active: bool = True) -> None:
        """Refuse new requests and end the waiting ones with an error, or all of them. Returns immediately."""
        self.is_stopping = True
        for request in list(self._requests):
            if ends_active or not request.has_begun:
                request.cancel(self._unavailable())

    def join(self) -> None:
        """Close the engine, since nobody uses it any more."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._engine:
            self._engine.close()

    def open(self) -> Engine:
        """Open the engine in this thread. Raises what opening raises, and KeyboardInterrupt if stopped meanwhile."""
        self._engine = engine = self._open_engine(lambda what, share: not self.is_stopping)
        engine.watch(self._abandon)
        return engine

    def _open(self) -> None:
        try:
            engine = self.open()
        except KeyboardInterrupt:  # stopped while loading
            return None
        except Exception as error:
            return self._on_failed(error)
        return self._on_loaded(engine)

    def _abandon(self, error: Exception) -> None:
        """End all requests, because the engine is lost."""
        self.stop()
        self._on_failed(error)

    def _refusal(self, n_waiting: int) -> ApiError:
        seconds = min(MAX_RETRY, math.ceil(self.totals.seconds_per_reply * n_waiting) + 1)
        message = f"The queue is full ({n_waiting} waiting). Try again in {seconds} s."
        return ApiError(429, message, code="queue_full", retry_after=seconds)

    def _unavailable(self) -> ApiError:
        if not self.is_stopping:
            message = "The model is still being loaded. Try again in a moment."
            return ApiError(503, message, code="loading", retry_after=1)
        return ApiError(503, self.policy.ended, code="shutting_down", retry_after=5)
