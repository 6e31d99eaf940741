"""Draft models made from the target alone.

Knows where they are put and that there is room for them; pairing.py measures them.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from runtime.backends.shrink import RECIPES, Recipe, shrink
from runtime.core.errors import ModelError
from runtime.loading.profile_cache import fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.shards import shard_names


def folder(target: Path) -> Path:
    """Where drafts of this very file belong."""
    return user_cache_path("slipstream") / "drafts" / fingerprint(target, "self-drafts")


def makeable(target: Path, facts: ModelFacts) -> list[Recipe]:
    """The recipes that make something smaller of this model. Raises ModelError where none can be followed."""
    if len(shard_names(target.name)) > 1:
        raise ModelError(
            f"{target.name} is one of several files, of which no smaller copy can be made. Merge them with llama.cpp's "
            "gguf-split."
        )
    found = [
        recipe for recipe in RECIPES if recipe.n_kept(facts.n_layers) < facts.n_layers or recipe.file_type is not None
    ]
    place = next(parent for parent in folder(target).parents if parent.exists())
    if shutil.disk_usage(place).free < 2 * facts.n_bytes:  # all copies together are smaller
        raise ModelError(
            f"There is no room for smaller copies of {target.name}. Free {2 * facts.n_bytes / 1e9:.1f} GB on the disk "
            f"of {place}."
        )
    return found


def make(target: Path, facts: ModelFacts, recipe: Recipe) -> Path:
    """The draft model of that recipe: written, or found where an earlier run kept it. Raises ModelError."""
    path = folder(target) / f"{target.stem}-{recipe.name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shrink(target, path, facts.n_layers, recipe)
    return path


def discard(target: Path, kept: Path | None) -> None:
    """Removes all drafts of the target but the one that is kept, and what a killed process left."""
    for path in folder(target).glob("*.gguf*"):
        if path != kept:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: one is kept
        folder(target).rmdir()
