"""The models that a server knows, found by their names. Loads nothing, and must not know HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from app.server.errors import ApiError
from app.server.names import listed, split_name, usual
from app.server.purpose import NEXT_BEST, Need, meets
from app.server.served_model import ServedModel
from runtime.models.adapters import titles

LOOK = 3.0  # seconds between two looks for models, which read folders


class KnownModels:
    """The models, and where more are found: `find_more` returns those that are there now."""

    def __init__(self, models: Sequence[ServedModel], find_more: Callable[[], Sequence[ServedModel]] = list) -> None:
        self.models = list(models)
        self._find_more, self._looked_at = find_more, -LOOK

    async def find(self, name: str, need: Need = "completion") -> ServedModel:
        """Return the model of that name; for "" one that meets the need: the one used last, else the first.

        Raises ApiError.
        """
        if not name:
            return await asyncio.to_thread(self.last, need)  # may read headers
        if found := self.named(name):
            return found
        await self.refresh()
        if found := self.named(name):
            return found
        raise self.unknown(name)

    def last(self, need: Need, models: Sequence[ServedModel] = ()) -> ServedModel:
        """Return the model that meets the need and was used last, else the first that does; of these, or of all.

        If there is none, it is one that does not, and can say so.
        """
        order = sorted(models or self.models, key=lambda each: -each.used_at)
        needs = need, NEXT_BEST.get(need, need)
        return next((each for wanted in needs for each in order if meets(each, wanted)), order[0])

    def named(self, name: str) -> ServedModel | None:
        """Return the known model of that name, which may end with one of its LoRA adapters, as `MODEL:ADAPTER`."""
        wanted, (base, title) = usual(name), split_name(name)
        found = (each for each in self.models if wanted in map(usual, each.names))
        adapted = (
            each
            for each in self.models
            if title and base in map(usual, each.names) and title in map(usual, titles(each.adapters))
        )
        return next(found, None) or next(adapted, None)

    def unknown(self, name: str) -> ApiError:
        """Return the error for a name that no model has, with the names like it."""
        names = [each.name for each in self.models]
        alike = [each for each in names if usual(name) in usual(each)] if name else []
        message = f"There is no model '{name[:100]}' here. Served: {listed(alike or names)}."
        return ApiError(404, message, "model", "model_not_found")

    async def refresh(self, is_asked: bool = False) -> None:
        """Add models that have come, and drop those that have gone and are not loaded. Looks at the disk seldom unless
        it is asked to.
        """
        if not is_asked and monotonic() - self._looked_at < LOOK:
            return
        self._looked_at = monotonic()
        found = {each.name: each for each in await asyncio.to_thread(self._find_more)}
        kept = [each for each in self.models if each.served is not None or each.name in found or not found]
        names = {each.name for each in kept}
        self.models = [*kept, *(each for name, each in found.items() if name not in names)]


class OnlyModel(KnownModels):
    """The only model of a server, which answers to any name."""

    async def find(self, name: str, need: Need = "completion") -> ServedModel:
        """Return the model."""
        return self.models[0]
