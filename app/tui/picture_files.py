"""Pictures on this machine: whether a file is one that can be shown to a model, and paths as terminals paste them.

Knows files and paths; knows no question and no widget.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from runtime.core.errors import PictureError
from runtime.core.outside import read_plain
from runtime.models.picture import MAX_BYTES, READERS, PictureSize, check_picture

HEAD = 512  # bytes of a file that tell its kind
LONGEST = 4096  # characters of a paste that may be paths
PLAIN = re.compile(r"[\w/~-]|[\w/.~-]+[\w/~-]")  # names that need no quotation marks after an @
Looked = tuple[PictureSize | None, str]


def look(path: Path) -> Looked:
    """Return a picture's format and size, and why it cannot be shown, as the end of a sentence that begins with its
    name; (None, "") for a file that is no picture. Raises OSError.
    """
    state = path.stat()
    return looked_at(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def looked_at(path: Path, changed: int, n_bytes: int) -> Looked:
    """As `look` does, once for each state of a file. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not (head.startswith(tuple(READERS)) and is_binary(head)):
        return None, ""
    if n_bytes > MAX_BYTES:
        return None, f"is larger than {MAX_BYTES >> 20} MiB"
    data = path.read_bytes()
    fault = fault_of(data)
    return None if fault else check_picture(data), fault


def fault_of(data: bytes) -> str:
    """Return why a file cannot be shown as a picture, as `look` does; "" if it can."""
    try:
        check_picture(data, "")
    except PictureError as error:
        return str(error).strip().partition(". ")[0]
    return ""


def is_binary(head: bytes) -> bool:
    """Return whether the beginning of a file is not that of a text."""
    with suppress(UnicodeDecodeError):
        return "\0" in head[:-4].decode()  # the last character may be cut
    return True


def load(path: Path) -> tuple[PictureSize, bytes] | None:
    """Return a picture's format and size, and its bytes; None for any other file, and for one that cannot be read."""
    with suppress(OSError, PictureError):
        if look(path)[0] is not None:
            data = read_plain(path)
            return check_picture(data), data
    return None


def named_if_dropped(text: str) -> str:
    """Return the names, each after an @, of the pictures whose paths a paste consists of, as terminals write what is
    dropped on them; "" for any other text.
    """
    if len(text) > LONGEST:
        return ""
    for paths in readings(text.strip()):
        if paths and all(map(is_picture, paths)):
            return "".join(f"@{quoted(str(path))} " for path in paths)
    return ""


def readings(text: str) -> Iterator[list[Path]]:
    """Yield the lists of paths that a text may be: one path, one on each line, or words as a shell reads them."""
    yield [path_in(text)]
    yield [path_in(line.strip()) for line in text.splitlines()]
    with suppress(ValueError):  # quotation marks that do not end
        words = shlex.split(text, posix=os.name != "nt")
        yield [path_in(word.strip('"')) for word in words]


def path_in(text: str) -> Path:
    """Return the path that a text is, or that its file:// address names."""
    with suppress(ValueError):
        address = urlsplit(text)
        if address.scheme == "file" and address.netloc in ("", "localhost"):
            return Path(url2pathname(address.path))
    return Path(text)


def is_picture(path: Path) -> bool:
    """Return whether a path is that of a picture that can be shown, or whose fault is named."""
    with suppress(OSError, RuntimeError, ValueError):  # too long for a path; no such user; a zero byte
        path = path.expanduser()
        return '"' not in str(path) and path.is_file() and look(path) != (None, "")
    return False


def quoted(name: str) -> str:
    """Return a file's name as it is written after an @."""
    return name if PLAIN.fullmatch(name) else f'"{name}"'
