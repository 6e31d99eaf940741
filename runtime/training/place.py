"""The private folder of a training: of everything learned about a head, or of a draft that is trained for a target.

There is one per target, and head or settings, in their present files: what changes gets another folder, and loses
nothing. Knows files only.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path, user_data_path

from runtime.core.errors import SlipstreamError
from runtime.core.outside import read_plain
from runtime.core.private_files import KEY, make_private_folder, own_folders
from runtime.loading.profile_cache import fingerprint

ABOUT, WINDOWS, LEARNED, WORK, LOCK = "about.json", "windows", "versions.json", "work", "lock"
GOING = "forgotten-"  # prefix of the name of a folder that is being removed


def root() -> Path:
    """Return the parent folder of the places of heads."""
    return user_data_path("slipstream") / "learned"


def trainings() -> Path:
    """Return the folder where trainings of drafts keep their state for resuming."""
    return user_cache_path("slipstream") / "trainings"


class Place:
    """One such folder, which is created when something is first stored."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def windows(self) -> Path:
        """The file of windows."""
        return self.path / WINDOWS

    @property
    def work(self) -> Path:
        """Temporary folder of a training; its name contains this place's number, which no later place shares."""
        return self.path / f"{WORK}-{self.number}"

    def make(self, facts: Mapping[str, Any]) -> str:
        """Create the folder with these facts about it; return its number, which a later one does not share. Raises
        OSError.
        """
        if known := self.number:
            return known
        self.make_folder()
        number = secrets.token_hex(8)
        (self.path / f"{WORK}-{number}").mkdir(0o700)
        self.write(ABOUT, {"number": number, **facts})
        return number

    def make_folder(self) -> None:
        """Create the folder alone. Raises OSError."""
        make_private_folder(self.path.parent)
        make_private_folder(self.path)

    @property
    def number(self) -> str:
        """Number that the folder got when it was created; "" where there is none."""
        return str(self.read(ABOUT).get("number", ""))

    def read(self, name: str) -> dict[str, Any]:
        """Return the facts in a file; empty where there is none that can be read."""
        try:
            found = json.loads(read_plain(self.path / name))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, facts: dict[str, Any]) -> None:
        """Write a file of facts, whole or not at all, readable by the user alone. Raises OSError."""
        write_whole(self.path / name, json.dumps(facts).encode())

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Yield whether this is the only process that trains here.

        The lock is released however the process ends. Raises OSError, also for a full disk.
        """
        path = self.path / LOCK
        path.touch(0o600)
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, timeout=0, isolation_level=None, uri=True)) as db:
            try:
                db.execute("BEGIN EXCLUSIVE")
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise OSError(ENOSPC, str(error), str(path)) from error
                yield False
            else:
                yield True


def clear(folder: Path) -> None:
    """Remove everything in a folder but its lock, which Windows does not remove while it is held. Raises OSError."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOCK, f"{LOCK}-journal"):
            path.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file for the user alone, completely or not at all. Raises OSError."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.touch(0o600)
        new.write_bytes(data)
        new.replace(path)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise


def place_of(target: Path, head: Path) -> Place:
    """Return the place of that target and head. Raises OSError where a file cannot be examined."""
    return Place(root() / fingerprint(target, "learned", fingerprint(head)))


def places() -> list[Place]:
    """Return all existing places."""
    return [Place(path.parent) for path in sorted(root().glob(f"*/{ABOUT}"))]


def forget() -> int:
    """Remove windows, trainings and learned heads of every model; return the number of bytes freed.

    They are unreachable immediately, so that a running training ends without a result. Raises SlipstreamError.
    """
    return wiped(root())


def wiped(folder: Path) -> int:
    """Remove the places in a folder, which are renamed first, and those whose removal was interrupted; return the bytes
    freed. Other files stay, as the folder may be a link to one of theirs.

    Raises SlipstreamError.
    """
    try:
        left = [*own_folders(folder, rf"{GOING}[0-9a-f]{{8}}")]
        places = [*own_folders(folder, KEY)]
        left += [each.rename(each.with_name(f"{GOING}{secrets.token_hex(4)}")) for each in places]
        n_bytes = sum(path.stat().st_size for each in left for path in each.rglob("*") if path.is_file())
        for each in left:
            shutil.rmtree(each)
        with suppress(OSError):  # not empty, or a link
            folder.rmdir()
    except OSError as error:
        raise SlipstreamError(
            f"{error.filename} cannot be removed ({error.strerror}). Close Slipstream where it runs, and try again."
        ) from error
    return n_bytes
