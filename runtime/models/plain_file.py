"""Reads regular files only: a pipe, a device or a socket is refused before it is opened, as that could wait forever."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from runtime.core.errors import SettingsError


def read_plain(path: Path) -> bytes:
    """Return the content of a file. Raises OSError."""
    require_plain(path)
    return path.read_bytes()


def expanded(path: Path) -> Path:
    """Return the path with a home folder in place of `~`. Raises SettingsError for that of an unknown user."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError(f"There is no home folder for '{path}'. Write the path in full.") from error


def require_plain(path: Path) -> None:
    """Raise OSError unless the path is a regular file."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a file, but a pipe, a device or a socket", str(path))
