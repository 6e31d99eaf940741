"""Makes draft models from the target alone.

Knows the room that they need; made_drafts.py knows their place, and pairing.py measures them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from runtime.backends.shrink import RECIPES, Recipe, shrink
from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.shards import shard_names
from runtime.tools.made_drafts import folder


def makeable(target: Path, facts: ModelFacts) -> list[Recipe]:
    """Return the recipes that make a smaller copy of this model. Raises ModelError if none can be followed."""
    if len(shard_names(target.name)) > 1:
        raise ModelError(
            f"{target.name} is split into several files, and no smaller copy can be made of those. Merge them with "
            "llama.cpp's gguf-split."
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
    """Return the draft model of that recipe, written now or by an earlier run. Raises ModelError."""
    path = folder(target) / f"{target.stem}-{recipe.name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shrink(target, path, facts.n_layers, recipe)
    return path
