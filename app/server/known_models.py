"""The models that a server knows, found by their names: of several, those on this machine, each under names that no
other has. Loads nothing, and must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from time import monotonic

from app.models.library import Model, models_below, of_file
from app.server.described import NEXT_BEST, Need, facts_of, meets
from app.server.errors import ApiError
from app.server.policy import served_names
from app.server.served_model import ServedModel
from runtime.models.adapters import is_adapter, titles
from runtime.models.heads import begins_for
from runtime.models.model_files import HUB
from runtime.models.registry import Pair

LOOK = 3.0  # seconds between two looks for models, which read folders
TAG = ":latest"  # which Ollama's clients add to a name
MOST_NAMES = 8  # in an error
Offer = tuple[tuple[str, ...], Pair]  # a model's names, the first for replies, and its files


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


def offered(folders: Iterable[Path], models: Iterable[Model]) -> list[Offer]:
    """Return the models that are here and those in the folders; of several, also their draft models. Other servers' are
    left out.
    """
    here = [each for each in models if each.is_here and not each.pair.upstream]
    found = once([*here, *files(path for folder in folders for path in models_below(folder))])
    found = [each for each in found if not is_lora(each)] or found
    drafts = (each.pair.draft for each in found if each.pair.draft and not begins_for(each.pair.draft))
    return [*named(once([*found, *files(drafts)]) if len(found) > 1 else found)]


def is_lora(model: Model) -> bool:
    """Return whether this is a LoRA adapter, which is used with a model."""
    facts = facts_of(model.pair.target)
    return facts is not None and is_adapter(facts.header)


def files(paths: Iterable[Path]) -> Iterator[Model]:
    """Yield the models of these files."""
    return (of_file(str(path), path) for path in paths)


def once(models: Iterable[Model]) -> list[Model]:
    """Return the models without those whose file one before them has."""
    found = dict[Path, Model]()
    for model in models:
        found.setdefault(model.pair.target.resolve(), model)
    return [*found.values()]


def named(models: Iterable[Model]) -> Iterator[Offer]:
    """Yield each model with those of its names that none before it has."""
    taken = set[str]()
    for model in models:
        names = [name for name in names_of(model) if usual(name) not in taken]
        if not names:  # files of one name in several folders
            name = f"{model.pair.target.parent.name}/{model.title}"
            numbered = (name if n == 1 else f"{name} {n}" for n in count(1))
            names = [next(each for each in numbered if usual(each) not in taken)]
        taken.update(map(usual, names))
        yield tuple(names), model.pair


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of a model: a pair's, or a file's without quantization, whole, and in the hub."""
    from_hub = (model.name,) if model.name.startswith(HUB) else ()
    return (*served_names(model.title, ()), *from_hub)


def usual(name: str) -> str:
    """Return a name as it is compared: without case and Ollama's tag."""
    return name.lower().removesuffix(TAG)


def listed(names: Sequence[str]) -> str:
    """Return the names, or the first of many."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def split_name(name: str) -> tuple[str, str]:
    """Return the parts of `MODEL:ADAPTER` as they are compared; the second is "" where there is none."""
    base, colon, title = usual(name).rpartition(":")
    return (base, title) if colon else (title, "")
