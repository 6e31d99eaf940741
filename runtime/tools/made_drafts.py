"""Lists, locates and removes draft models that were made on this machine.

Knows files and headers; loads no model library. They are made by self_drafts.py and trimmed_drafts.py.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from runtime.core.errors import ModelError
from runtime.core.removal import KEY, own_files, own_folders, remove_files
from runtime.learning.place import wiped
from runtime.loading.profile_cache import fingerprint
from runtime.models.facts import ModelFacts
from runtime.models.header import read_model_header
from runtime.models.trimmed import Trim, trim_of

SUFFIX = "-words.gguf"  # of copies with a reduced vocabulary
TRAINED = "-trained.gguf"  # of drafts trained on replies


def root() -> Path:
    """Return the folder of all of them."""
    return user_cache_path("slipstream") / "drafts"


def trainings() -> Path:
    """Return the folder where trainings keep their state for resuming."""
    return user_cache_path("slipstream") / "trainings"


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
