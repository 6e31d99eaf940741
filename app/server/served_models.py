"""The models of one server: each is loaded when a request names it, and unloaded when its memory is needed for another
or its time is over. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any

from app.server.errors import ApiError
from app.server.known_models import KnownModels
from app.server.metrics import Totals
from app.server.policy import ServerPolicy
from app.server.served import ServedEngine
from app.server.served_model import MemoryWish, OpenPair, ServedModel
from runtime.core.errors import NoMemoryError, SlipstreamError
from runtime.engine.output import Status

LEVELS = "", "OK", "TIGHT", "CRITICAL"


Crowd = tuple[str, frozenset[str]]  # the name of a model, and of others that were loaded
CROWDED = 600.0  # seconds for which it counts that they did not fit together


class ServedModels:
    """Loads and unloads models, one at a time.

    Memory decides, not a number of models: if a model does not fit with the others, those used least recently go
    first, and the drafts of idle ones before any. A running reply is never ended for that: the new request waits.
    """

    def __init__(
        self,
        known: KnownModels,
        open_pair: OpenPair | None,
        policy: ServerPolicy,
        max_waiting: int | None = None,
        only: ServedEngine | None = None,
    ) -> None:
        """At most `max_waiting` requests wait for a model. `only` is that of a server with a single one, which answers
        to any name; without `open_pair`, no other is loaded.
        """
        self.known, self.policy, self.only, self.created_at = known, policy, only, int(time())
        self.totals = only.totals if only else Totals()
        self._open_pair, self._max_waiting = open_pair, max_waiting
        self._turn, self._n_waiting = asyncio.Lock(), 0
        self._tasks, self.is_stopping = set[asyncio.Task[None]](), False
        self._crowds = dict[Crowd, float]()  # when a model was found not to fit with others

    @property
    def models(self) -> list[ServedModel]:
        """The models, loaded or not."""
        return self.known.models

    def start(self) -> None:
        """Start loading the only model. Several are loaded when requests name them."""
        if self.only is not None:
            self.only.start()

    async def hold(self, model: ServedModel) -> ServedEngine:
        """Load a model, if it is not, and hold it: between the two, another one might take its place. Return its
        engine. Raises ApiError.
        """
        if model.is_loaded:
            return model.hold()
        if self._max_waiting is not None and self._n_waiting >= self._max_waiting:
            message = f"{self._n_waiting} requests wait for a model. Try again in a moment."
            raise ApiError(429, message, code="queue_full", retry_after=5)
        self._n_waiting += 1
        try:
            async with self._turn:
                if not model.is_loaded:
                    await self._load(model)
                return model.hold()
        finally:
            self._n_waiting -= 1

    async def load(self, model: ServedModel) -> None:
        """Load a model that nobody uses yet. Raises ApiError."""
        await self.hold(model)
        model.release()

    async def _load(self, model: ServedModel) -> None:
        """Load a model in addition to the others, or in place of those that must go."""
        model.check()
        while True:
            if self.is_stopping:
                raise ApiError(503, self.policy.ended, code="shutting_down", retry_after=5)
            others = [each for each in self.models if each.is_loaded]
            movable = [each for each in others if not each.stays]
            is_full = len(others) >= (self.policy.max_models or len(others) + 1)
            if not is_full and (not movable or not self._is_crowded(model, others)):
                try:
                    return await self._load_with(others, model, is_whole=bool(movable))
                except NoMemoryError as error:
                    if not movable:
                        raise ApiError(503, f"The model '{model.name}' cannot be loaded: {error}", "model") from error
                    if await close_drafts(movable):
                        continue
                    self._crowds[crowd(model, others)] = monotonic()
            if not movable:
                message = f"{len(others)} models are loaded, as many as `--models-max` allows, and all of them stay."
                raise ApiError(503, f"{message} Raise it, or keep fewer.", "model")
            await min(movable, key=lambda each: (not each.is_idle, each.used_at)).unload()

    async def _load_with(self, others: Sequence[ServedModel], model: ServedModel, is_whole: bool) -> None:
        """Load a model in the memory that the others leave. What they have mapped of its own files, such as a draft
        model that is asked for by its name, it does not take again. Raises NoMemoryError, and ApiError.
        """
        assert self._open_pair is not None
        files = model.pair.files if model.pair else []
        reserved = sum(each.served.engine.pending_bytes(files) for each in others if each.served)
        await model.load(self._open_pair, MemoryWish(reserved, is_whole), self.policy, self.totals)

    def _is_crowded(self, model: ServedModel, others: Sequence[ServedModel]) -> bool:
        """Return whether there was no memory for a model with the others lately: trying takes about a second."""
        return monotonic() - self._crowds.get(crowd(model, others), -CROWDED) < CROWDED

    async def unload(self, model: ServedModel) -> None:
        """Unload a model once no request uses it."""
        async with self._turn:
            await model.unload()

    def let_go(self, model: ServedModel) -> None:
        """Begin to unload a model, once no request uses it, unless it is one that stays."""
        if model.served is not None and not model.stays:
            self.begin(self.unload(model))

    def expire(self, model: ServedModel) -> None:
        """Unload a model after its time, if no request comes before. To be called when a request has ended."""
        if model.keep_alive is None or model.stays or not model.is_idle or model.served is None:
            return
        used_at = model.used_at

        async def unload() -> None:
            async with self._turn:  # for which it may have waited
                if model.is_idle and model.used_at == used_at and not self.is_stopping:
                    await model.unload()

        asyncio.get_running_loop().call_later(model.keep_alive, lambda: self.begin(unload()))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that nobody waits for. Its error is kept with the model."""

        async def run() -> None:
            with suppress(ApiError):
                await work

        self._tasks.add(task := asyncio.create_task(run()))
        task.add_done_callback(self._tasks.discard)

    def stop_reading_ahead(self, model: ServedModel) -> None:
        """Let the other models end what they read ahead: a request for this one needs the processor."""
        for each in self.engines:
            if each is not model.served:
                each.stop_reading_ahead()

    @property
    def engines(self) -> list[ServedEngine]:
        """The engines of models that are loaded, being loaded or unloaded."""
        return [each.served for each in self.models if each.served is not None]

    @property
    def current(self) -> ServedModel | None:
        """The loaded model that was used last, if possible one that writes text; None if there is none."""
        loaded = [each for each in self.models if each.is_loaded]
        return self.known.last("completion", loaded) if loaded else None

    @property
    def listed(self) -> list[ServedModel]:
        """The models for a list of them. Raises ApiError while the only one is being loaded."""
        if self.only is not None:
            self.only.check()
        return self.models

    @property
    def n_active(self) -> int:
        """The number of running requests."""
        return sum(each.n_active for each in self.engines)

    @property
    def n_waiting(self) -> int:
        """The number of requests that wait to run, or for their model."""
        return self._n_waiting + sum(each.n_waiting for each in self.engines)

    @property
    def is_answering(self) -> bool:
        """Whether any request is running."""
        return self.n_active > 0

    @property
    def status(self) -> Status:
        """The engines' states together: the highest level of memory pressure, and sums."""
        states = [each.status for each in self.engines if each.is_loaded]
        level = max((each.memory_level for each in states), key=LEVELS.index, default="")
        ahead = sum(each.ahead[0] for each in states), sum(each.ahead[1] for each in states)
        return Status(n_held=sum(each.n_held for each in states), memory_level=level, ahead=ahead)

    def stop(self, ends_active: bool = True) -> None:
        """Refuse new requests and end the waiting ones with an error, or all of them. Returns immediately."""
        self.is_stopping = True
        for each in self.engines:
            each.stop(ends_active)

    def join(self) -> None:
        """Close all engines, since nobody uses them any more."""
        for each in self.engines:
            each.join()


async def close_drafts(models: Sequence[ServedModel]) -> bool:
    """Close the drafts of an idle model until a reply of it finds room for them, of the one used least recently that
    has any. Return whether one has.
    """
    for model in sorted(models, key=lambda each: each.used_at):
        with suppress(ApiError, SlipstreamError):  # it is lost, and a request for it will say so
            served = model.served if model.is_idle else None
            n_bytes = await asyncio.to_thread(served.engine.close_drafts) if served else 0
            if n_bytes:
                return True
    return False


def crowd(model: ServedModel, others: Sequence[ServedModel]) -> Crowd:
    """Return a model with others."""
    return model.name, frozenset(each.name for each in others)


def one_model(only: ServedEngine) -> ServedModels:
    """Return the only model of a server, which ends if that cannot be loaded."""
    known = KnownModels([ServedModel(only.policy.aliases, served=only)])
    return ServedModels(known, None, only.policy, only=only)
