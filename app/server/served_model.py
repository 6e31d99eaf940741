"""A model of the server, by its names, loaded or not. Must not know HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.server.errors import ApiError
from app.server.metrics import Totals
from app.server.policy import Scales, ServerPolicy
from app.server.served import ServedEngine
from runtime.core.errors import ModelError, NoMemoryError
from runtime.engine import Engine
from runtime.models.adapters import Adapter
from runtime.models.registry import Pair

RETRY = 60.0  # seconds for which a model that could not be loaded is not tried again


@dataclass(frozen=True, slots=True)
class MemoryWish:
    """Bytes of free memory that other models will take, and whether loading fails rather than leave out a part."""

    reserved: int = 0
    is_whole: bool = False


# Opens a pair within the memory that is left to it; the last argument is the progress callback
OpenPair = Callable[[Pair, MemoryWish, Callable[[str, float], bool]], Engine]


class ServedModel:
    """A model that is loaded by ServedModels, and stays loaded while it is in use."""

    def __init__(
        self,
        names: Sequence[str],
        pair: Pair | None = None,
        keep_alive: float | None = None,
        stays: bool = False,
        served: ServedEngine | None = None,
    ) -> None:
        """`keep_alive`: seconds to stay after a request unless one says otherwise, None until its memory is needed.
        `stays`: for ever. The only model of a server has `served`, which knows its pair.
        """
        self._names, self.pair = tuple(names), pair and replace(pair, name=names[0])
        self._usual_keep_alive, self.keep_alive, self.stays = keep_alive, keep_alive, stays
        self.served = served  # while it is loaded, being loaded or unloaded
        self.is_leaving = False  # new requests wait until it is loaded again
        self.used_at = 0.0  # when a request began or ended, by the monotonic clock
        self.failure: tuple[float, Exception] | None = None  # when it could not be loaded, and why
        self.lora: Scales = None  # LoRA adapters of requests that name none, also when it is loaded again
        self._n_users, self._idle = 0, asyncio.Event()
        self._idle.set()

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, the first for replies; none while the only model of a server is loading and has no other."""
        return self._names or ((self.served.model,) if self.served and self.served.model else ())

    @property
    def name(self) -> str:
        """Its name in replies, or ""."""
        return next(iter(self.names), "")

    @property
    def adapters(self) -> tuple[Adapter, ...]:
        """Its LoRA adapters; none while the only model of a server is loading."""
        pair = engine.pair if (engine := self.engine) else self.pair
        return pair.lora if pair else ()

    @property
    def engine(self) -> Engine | None:
        """Its engine while it can answer. Raises ApiError while the server is stopping."""
        return self.served.engine if self.is_loaded and self.served else None

    @property
    def is_loaded(self) -> bool:
        """Whether it can answer now."""
        return self.served is not None and self.served.is_loaded and not self.is_leaving

    @property
    def is_idle(self) -> bool:
        """Whether no request uses it."""
        return self._n_users == 0

    @property
    def state(self) -> str:
        """Its state, as llama.cpp names it."""
        if self.served is None:
            return "unloaded"
        return "loaded" if self.served.is_loaded else "loading"

    def hold(self) -> ServedEngine:
        """Keep the loaded model until `release`, and return its engine."""
        assert self.served is not None
        self._n_users, self.used_at = self._n_users + 1, time.monotonic()
        self._idle.clear()
        return self.served

    def release(self) -> None:
        """Note that one user has ended."""
        self._n_users, self.used_at = self._n_users - 1, time.monotonic()
        if not self._n_users:
            self._idle.set()

    def check(self) -> None:
        """Raise the error with which it could not be loaded lately, unless memory was short."""
        if self.failure and time.monotonic() - self.failure[0] < RETRY:
            raise self.failure[1]

    async def load(self, open_pair: OpenPair, wish: MemoryWish, policy: ServerPolicy, totals: Totals) -> None:
        """Load it. Raises NoMemoryError, and ApiError where it cannot be loaded at all."""
        served = ServedEngine(
            lambda on_progress: open_pair(self._pair, wish, on_progress),
            lambda engine: None,
            self._lose,
            replace(policy, aliases=self.names, lora=self.lora),
            totals,
        )
        self.served, self.failure, self.keep_alive = served, None, self._usual_keep_alive
        await to_the_end(self._open(served))

    @property
    def _pair(self) -> Pair:
        assert self.pair is not None
        return self.pair

    async def _open(self, served: ServedEngine) -> None:
        try:
            await asyncio.to_thread(opened, served)
        except NoMemoryError:
            self.served = None
            raise
        except Exception as error:
            self.served = None
            refusal = ApiError(500, f"The model '{self.name}' cannot be loaded: {error}", "model", "model_not_loaded")
            self.failure = time.monotonic(), refusal
            raise refusal from error
        self.used_at = time.monotonic()

    def _lose(self, error: Exception) -> None:
        """Close the engine, which is lost. The next request loads it again. Called on a thread of the engine."""
        served, self.served = self.served, None
        if served is not None:
            threading.Thread(target=served.join, name="lost model").start()

    async def unload(self) -> None:
        """Unload it once no request uses it. Requests that come meanwhile wait."""
        self.is_leaving = True
        try:
            await self._idle.wait()
            if self.served is not None:
                await to_the_end(self._close(self.served))
        finally:
            self.is_leaving = False

    async def _close(self, served: ServedEngine) -> None:
        served.stop()
        await asyncio.to_thread(served.join)
        self.served = None


def opened(served: ServedEngine) -> None:
    """Open the engine. Raises what opening raises."""
    try:
        served.open()
    except KeyboardInterrupt:
        raise ModelError("the server is shutting down.") from None


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that goes on to its end also if nobody waits for it any more."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
