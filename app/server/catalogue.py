"""The models that a server of several offers: those on this machine, each under names that no other has.

Knows names and files; loads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from app.models.library import Model, models_below, of_file
from app.server.names import usual
from app.server.policy import served_names
from app.server.purpose import facts_of
from runtime.models.adapters import is_adapter
from runtime.models.heads import begins_for
from runtime.models.model_files import HUB
from runtime.models.registry import Pair

Offer = tuple[tuple[str, ...], Pair]  # a model's names, the first for replies, and its files


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
            parent = model.pair.target.parent.name
            names = [next(name for name in numbered(f"{parent}/{model.title}") if usual(name) not in taken)]
        taken.update(map(usual, names))
        yield tuple(names), model.pair


def names_of(model: Model) -> tuple[str, ...]:
    """Return the names of a model: a pair's, or a file's without quantization, whole, and in the hub."""
    from_hub = (model.name,) if model.name.startswith(HUB) else ()
    return (*served_names(model.title, ()), *from_hub)


def numbered(name: str) -> Iterator[str]:
    """Yield a name, then with numbers after it."""
    yield name
    n = 2
    while True:
        yield f"{name} {n}"
        n += 1
