"""Files and folders for the user alone: made, and removed at the user's request, by their names. Knows nothing of their
contents.

A folder of the app may be a link to one that also holds files of others, which must stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from runtime.core.errors import SlipstreamError

KEY = r"[0-9a-f]{32}"  # name of a file or folder that is made for one model


def make_private_folder(path: Path) -> None:
    """Create the folder with access for the user only. The mode of one elsewhere, behind a link or mounted, stays."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.is_symlink() and not path.is_mount():
        close_to_others(path, 0o700)


def close_to_others(path: Path, mode: int) -> None:
    """Set the mode of a path if group or others have any access to it."""
    if path.stat().st_mode & 0o077:
        path.chmod(mode)


def own_files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the regular files of a folder, no links, whose whole names match that pattern."""
    for path in sorted(folder.glob("*")):
        if re.fullmatch(name, path.name) and path.is_file() and not path.is_symlink():
            yield path


def own_folders(folder: Path, name: str) -> Iterator[Path]:
    """Yield the folders in a folder, no links, whose whole names match that pattern."""
    for path in sorted(folder.glob("*")):
        if re.fullmatch(name, path.name) and path.is_dir() and not path.is_symlink():
            yield path


def remove_files(paths: Iterable[Path], remedy: str) -> int:
    """Remove the files and return their total size in bytes.

    Raises SlipstreamError, which ends with the remedy, for the first file that cannot be removed.
    """
    n_bytes = 0
    for path in paths:
        try:
            n_bytes += path.stat().st_size
            path.unlink()
        except OSError as error:
            raise SlipstreamError(f"{path} cannot be removed ({error.strerror}). {remedy}") from error
    return n_bytes
