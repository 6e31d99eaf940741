"""Changes of text files on disk: atomic, only if the file is unchanged since it was read, and with its line ends and
permissions preserved. Every change can be undone.

Knows files; knows no chat and no model.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from runtime.core import outside
from runtime.core.errors import SettingsError
from runtime.core.outside import MARK, NotTextError, encoding_of, exact_text

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True, slots=True)
class FileChange:
    """The exact text of a file before and after a change."""

    path: str
    before: str
    after: str


def change(path: Path, before: str, after: str) -> FileChange:
    """Write `after` if the file's text is `before`, both with LF line ends and none at the end.

    Raises SettingsError if the file has another text or cannot be written.
    """
    original = text_in(path)
    if plain(original) != before:
        raise SettingsError(
            f"{path} has changed since it was attached, so the edit may not fit any more. Ask again with the file as "
            "it is now."
        )
    done = FileChange(str(path.resolve()), original, with_line_ends(original, after))  # resolves links
    write_whole(Path(done.path), done.after)
    return done


def take_back(done: FileChange) -> None:
    """Restore the text before a change. Raises SettingsError if the file was changed since, or cannot be written."""
    path = Path(done.path)
    if text_in(path) != done.after:
        raise SettingsError(f"{path} has changed since the edit was written, so it stays as it is.")
    write_whole(path, done.before)


def text_in(path: Path) -> str:
    """Return the exact text of the file, with its byte-order mark if it has one. Raises SettingsError."""
    try:
        return exact_text(path.read_bytes())
    except FileNotFoundError as error:
        raise SettingsError(f"{path} is not there any more, so it is not changed.") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}), so it is not changed.") from error
    except NotTextError as error:
        raise SettingsError(f"{path} is no UTF-8 text any more, so it is not changed.") from error


def plain(text: str) -> str:
    """Return the text with LF line ends, none at the end, and without a byte order mark."""
    return outside.plain(text).rstrip("\n")


def with_line_ends(original: str, after: str) -> str:
    """Return `after` with the line ends of `original`: unchanged lines keep theirs, others get the most common one.

    The end of the file stays as it is.
    """
    mark, body = (MARK, original[1:]) if original.startswith(MARK) else ("", original)
    ends = [line[len(line.rstrip("\r\n")) :] for line in LINE.findall(body)]
    usual = Counter(end for end in ends if end).most_common(1)
    new = [usual[0][0] if usual else "\n"] * (after.count("\n") + 1)
    before = plain(original).split("\n")
    for old_at, new_at, n in SequenceMatcher(None, before, after.split("\n")).get_matching_blocks():
        same = zip(ends[old_at:], new[new_at : new_at + n], strict=False)
        new[new_at : new_at + n] = [old or usual_end for old, usual_end in same]
    lines = [line + end for line, end in zip(after.split("\n"), new, strict=True)]
    lines[-1] = after.rpartition("\n")[2] + "".join(ends[len(before) - 1 :]) if body else lines[-1]
    return mark + "".join(lines)


def write_whole(path: Path, text: str) -> None:
    """Replace the file by a complete copy with its encoding and permissions. Raises SettingsError."""
    copy: Path | None = None
    try:
        if not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
            raise SettingsError(f"{path} may only be read, so it is not changed. Make it writable first.")
        with tempfile.NamedTemporaryFile(prefix=f".{path.name[:64]}.", dir=path.parent, delete=False) as file:
            copy = Path(file.name)
            file.write(text.encode(encoding_of(path.read_bytes())))
            file.flush()
            os.fsync(file.fileno())
        as_it_is(path, copy)
        copy.replace(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written ({error.strerror}). It is as it was.") from error
    finally:
        if copy is not None:
            copy.unlink(missing_ok=True)


def as_it_is(path: Path, copy: Path) -> None:
    """Give a copy the file's permissions and, where that is allowed, its owner."""
    shutil.copystat(path, copy)
    os.utime(copy)
    with suppress(OSError, AttributeError):  # somebody else's file; a system without owners
        found = path.stat()
        os.chown(copy, found.st_uid, found.st_gid)
        copy.chmod(stat.S_IMODE(found.st_mode))  # changing the owner removes some of them
