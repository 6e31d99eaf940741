"""Files that are only files: a pipe, a device or a socket of such a name is refused before it is opened, since that
could wait for ever.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path


def read_plain(path: Path) -> bytes:
    """The content of a file. Raises OSError."""
    require_plain(path)
    return path.read_bytes()


def require_plain(path: Path) -> None:
    """Raises OSError for what is no file: a folder as well."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no file, but a pipe, a device or a socket", str(path))
