"""Draft models that were made on this machine: listed, located and removed; and made of a target alone.

Knows files and headers, and the room that they need; loads no model library but to make one. trimmed_drafts.py makes
those with a reduced vocabulary, and pairing.py measures them.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from runtime.core.errors import ModelError
from runtime.core.private_files import KEY, make_private_folder, own_files, own_folders, remove_files
from runtime.loading.profile_cache import fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.shards import shard_names
from runtime.models.trimmed import Trim, trim_of
from runtime.training.place import trainings, wiped

if TYPE_CHECKING:
    from runtime.backends.shrink import Recipe

SUFFIX = "-words.gguf"  # of copies with a reduced vocabulary
TRAINED = "-trained.gguf"  # of drafts trained on replies


def root() -> Path:
    """Return the folder of all of them."""
    return user_cache_path("slipstream") / "drafts"


def folder(target: Path) -> Path:
    """Return the folder of the drafts made for this very file."""
    return root() / fingerprint(target, "self-drafts")


def trim_in(path: Path) -> Trim | None:
    """Return the record of a copy with a reduced vocabulary; None for other or unreadable files."""
    with suppress(ModelError, OSError):
        return trim_of(ModelFacts(read_model_header(path)))
    return None


def whole(path: Path) -> Path:
    """Return the model itself, or the source of a copy with a reduced vocabulary."""
    trim = trim_in(path)
    return trim.source if trim else path


def made_here() -> list[Path]:
    """Return all of them, by name."""
    return sorted(root().glob("*/*.gguf"), key=lambda path: (path.name, path.parent.name))


def discard(target: Path, kept: Path | None) -> None:
    """Remove all drafts of the target except `kept` and the source of `kept`, and remains of killed processes."""
    stay = {kept, whole(kept)} if kept else set()
    for path in folder(target).glob("*.gguf*"):
        if path not in stay:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: one is kept
        folder(target).rmdir()


def forget() -> int:
    """Remove all files that reveal the words of replies, and return the number of bytes freed.

    These are copies with a reduced vocabulary, drafts trained on replies, and the state of trainings. Raises
    SlipstreamError if a file cannot be removed.
    """
    n_bytes = wiped(trainings())  # first, so that none finishes a draft afterwards
    name = rf".*({SUFFIX}|{TRAINED}).*"
    drafts = (path for folder in own_folders(root(), KEY) for path in own_files(folder, name))
    return n_bytes + remove_files(drafts, "Close Slipstream where it runs, and try again.")


def moved(target: Path, kind: str, draft: Path) -> Path:
    """Move a trained draft of that kind to its place, replacing an earlier one. Raises OSError."""
    path = folder(target) / f"{target.stem}-{kind}{TRAINED}"
    make_private_folder(path.parent)
    return draft.replace(path)


def makeable(target: Path, facts: ModelFacts) -> list[Recipe]:
    """Return the recipes that make a smaller copy of this model. Raises ModelError if none can be followed."""
    from runtime.backends.shrink import RECIPES  # the library

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
    from runtime.backends.shrink import shrink  # the library

    path = folder(target) / f"{target.stem}-{recipe.name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shrink(target, path, facts.n_layers, recipe)
    return path
