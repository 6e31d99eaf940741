"""The model that a terminal chat starts with: the named one, that of the settings file, or the one used last.

Knows names, the settings and the file of chats; opens models only by the given function.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.chats.authors import recent_models
from app.models.library import ollama_name
from app.settings import default_path, read_settings
from runtime.core.errors import RegistryError, SlipstreamError
from runtime.engine import Engine
from runtime.models.registry import Pair, find_pair, load_registry

BUNDLED = "demo"
LAST = "The model used last"
OpenEngine = Callable[..., Engine]  # of a pair, options, and more


@dataclass(frozen=True, slots=True)
class StartModel:
    """The model to start with."""

    pair: Pair  # if there is a problem, the bundled one under the name of the missing one
    origin: str = ""  # where the name is from if it was not given, as the subject of a sentence
    problem: str = ""  # why no such model can be found

    def opening(self, open_engine: OpenEngine) -> OpenEngine:
        """Return the function that opens models; for this model its errors name the origin."""

        def opened(pair: Pair, *more: Any, **named: Any) -> Engine:
            if pair is not self.pair or not self.origin:
                return open_engine(pair, *more, **named)
            try:
                if self.problem:
                    raise RegistryError(self.problem)
                return open_engine(pair, *more, **named)
            except SlipstreamError as error:
                raise SlipstreamError(f"{self.origin} cannot be loaded: {error}") from error

        return opened


def start_model(named: str, chats: Path | None = None) -> StartModel:
    """Return the model to start with. Raises SlipstreamError if the named one cannot be found."""
    recent = list(recent_models(chats))
    if named:
        return StartModel(found(named, recent))
    chosen, last = read_settings().model, next(iter(recent), "")
    if not (chosen or last):
        return StartModel(found(BUNDLED))
    origin = f"The model in {default_path()}" if chosen else LAST
    try:
        return StartModel(found(chosen or last, recent), origin)
    except SlipstreamError as error:
        return StartModel(replace(found(BUNDLED), name=Path(chosen or last).name), origin, str(error))


def found(name: str, recent: Sequence[str] = ()) -> Pair:
    """Return the pair of that name or the file, which has Ollama's name if it is Ollama's. Raises SlipstreamError."""
    pair = find_pair(name, load_registry(), recent)
    return replace(pair, name=ollama_name(pair.target) or pair.name)


def can_load(name: str, recent: Sequence[str]) -> bool:
    """Return whether that name loads a model without fetching anything; servers are not asked."""
    with suppress(SlipstreamError):
        pair = found(name, recent)
        return bool(pair.upstream) or os.path.isfile(pair.target)  # noqa: PTH113 (never raises)
    return False
