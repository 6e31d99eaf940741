"""Draft models that were made on this machine: where they are, which there are, and out with them.

Knows files and headers; loads no model library. How they are made is said in self_drafts.py and trimmed_drafts.py.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from runtime.core.errors import ModelError
from runtime.core.removal import remove_files
from runtime.learning.place import wiped
from runtime.loading.profile_cache import fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.trimmed import Trim, trim_of

SUFFIX = "-words.gguf"  # of the names of copies with fewer words
TRAINED = "-trained.gguf"  # of the names of drafts that learned from replies


def root() -> Path:
    """Where all of them are."""
    return user_cache_path("slipstream") / "drafts"


def trainings() -> Path:
    """Where trainings keep what they need to go on."""
    return user_cache_path("slipstream") / "trainings"


def folder(target: Path) -> Path:
    """Where those belong that were made for this very file."""
    return root() / fingerprint(target, "self-drafts")


def trim_in(path: Path) -> Trim | None:
    """What a copy with fewer words says of itself; None for other files, and for what cannot be read."""
    with suppress(ModelError, OSError):
        return trim_of(ModelFacts(read_model_header(path)))
    return None


def whole(path: Path) -> Path:
    """The model itself, or the one that it is a copy of with fewer words."""
    trim = trim_in(path)
    return trim.source if trim else path


def made_here() -> list[Path]:
    """All that there are, by name."""
    return sorted(root().glob("*/*.gguf"), key=lambda path: (path.name, path.parent.name))


def discard(target: Path, kept: Path | None) -> None:
    """Removes all drafts of the target but the one that is kept, the one that it is a copy of, and what a killed
    process left.
    """
    stay = {kept, whole(kept)} if kept else set()
    for path in folder(target).glob("*.gguf*"):
        if path not in stay:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: one is kept
        folder(target).rmdir()


def forget() -> int:
    """Removes all that tells what words replies had: copies with fewer words, drafts that learned from replies, and
    what trainings left; returns how many bytes those were.

    Raises SlipstreamError where it cannot.
    """
    n_bytes = wiped(trainings())  # first, so that none ends with a draft after that
    drafts = [*root().glob(f"*/*{SUFFIX}*"), *root().glob(f"*/*{TRAINED}*")]
    return n_bytes + remove_files(drafts, "Close Slipstream where it runs, and try again.")
