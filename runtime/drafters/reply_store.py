"""Past replies on disk, one SQLite file per model and vocabulary: token ids, for the user alone, bounded in size, and
never worth an error.

They hold what a person read, so the folder and its files are closed to others (0700, 0600). Processes may share a
file; it is open only for the moment of a question or a change. A file that is damaged, or of another format, is
removed. Where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
from platformdirs import user_data_path

from runtime.core.draft import Tokens
from runtime.core.removal import remove_files

MAX_BYTES = 512 * 1024  # of all replies in a file: 130,000 tokens
KEPT = 0.75  # of that, when the oldest replies are dropped
PATIENCE = 0.2  # seconds to wait for another process that is writing
DAMAGED = -1  # in place of the id of the newest reply
ON_DISK = np.dtype("<i4")
# An id is when the reply was kept, in nanoseconds: unlike a count, it does not come back after a wipe
SCHEMA = "CREATE TABLE IF NOT EXISTS replies(id INTEGER PRIMARY KEY, tokens BLOB NOT NULL)"
NEWEST = "SELECT max(id) FROM replies"
ADD = "INSERT INTO replies SELECT max(?, coalesce(max(id) + 1, 0)), ? FROM replies"
N_BYTES = "sum(length(tokens) + 16)"  # with what a row takes beside its tokens
DROP_OLDEST = f"""
DELETE FROM replies WHERE (SELECT {N_BYTES} FROM replies) > ? AND id IN (
    SELECT id FROM (SELECT id, {N_BYTES} OVER (ORDER BY id DESC) AS n_bytes FROM replies) WHERE n_bytes > ?)
"""

log = logging.getLogger(__name__)


def folder() -> Path:
    """Where every model's replies are."""
    return user_data_path("slipstream") / "replies"


class Replies:
    """One file of past replies."""

    def __init__(self, path: Path, n_vocab: int, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.n_vocab, self.max_bytes = path, n_vocab, max_bytes
        self.max_tokens = max_bytes // ON_DISK.itemsize
        self._seen: int | None = None  # the id of the newest reply that was read or kept here

    def has_changed(self) -> bool:
        """Did another process keep a reply, or wipe them all?"""
        return self._newest() != self._seen

    def _newest(self) -> int | None:
        """The id of the newest reply, if there is one; what is locked for long is taken to be unchanged."""
        try:
            with self._opened() as db:
                newest: int | None = db.execute(NEWEST).fetchone()[0]
        except sqlite3.OperationalError as error:
            return None if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN else self._seen
        except sqlite3.DatabaseError:
            return DAMAGED
        return newest

    def read(self) -> list[Tokens]:
        """The replies that are kept, oldest first; none where they cannot be read."""
        rows: list[tuple[int, object]] = []
        try:
            with self._opened() as db:
                # A query alone overlooks that a file was cut off
                if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError
                rows = db.execute("SELECT id, tokens FROM replies ORDER BY id").fetchall()
        except sqlite3.OperationalError as error:
            log.info("Past replies cannot be read (%s), so nothing is drafted from them.", error)
        except sqlite3.DatabaseError:
            log.warning("The file of past replies %s was damaged and is made anew.", self.path)
            with suppress(OSError):
                self.path.unlink()
        self._seen = rows[-1][0] if rows else self._newest()
        return [reply for _, tokens in rows if (reply := self._checked(tokens)) is not None]

    def _checked(self, tokens: object) -> Tokens | None:
        """The reply in a row, if it is one of this vocabulary."""
        if not isinstance(tokens, bytes) or len(tokens) % ON_DISK.itemsize:
            return None
        reply = np.frombuffer(tokens, dtype=ON_DISK).astype(np.int32)
        return reply if reply.view(np.uint32).max(initial=0) < self.n_vocab else None

    def append(self, reply: Tokens) -> None:
        """Keeps one more, where that is possible; the oldest are dropped when all take too much room."""
        try:
            make_private_folder(self.path.parent)
            self.path.touch(0o600)
            close_to_others(self.path, 0o600)
            with self._opened() as db:
                db.execute("BEGIN IMMEDIATE")
                db.execute(SCHEMA)
                before = db.execute(NEWEST).fetchone()[0]
                kept = db.execute(ADD, (time.time_ns(), reply.astype(ON_DISK).tobytes())).lastrowid
                n_dropped = db.execute(DROP_OLDEST, (self.max_bytes, int(KEPT * self.max_bytes))).rowcount
        except (OSError, sqlite3.Error) as error:
            log.info("The reply could not be kept (%s).", error)
            return
        if before == self._seen and not n_dropped:  # else the file is read again before the next reply
            self._seen = kept

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The database, if its file exists; changes are committed at the end. Raises sqlite3.Error."""
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, timeout=PATIENCE, uri=True)) as db, db:
            db.execute("PRAGMA synchronous = OFF")  # what a power cut takes away was worth little
            yield db


def make_private_folder(path: Path) -> None:
    """Makes the folder, for the user alone."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    close_to_others(path, 0o700)


def close_to_others(path: Path, mode: int) -> None:
    """Takes away what others may do with it, if they may do anything."""
    if path.stat().st_mode & 0o077:
        path.chmod(mode)


def forget() -> int:
    """Wipes the replies kept of every model; returns how many bytes that were.

    Raises SlipstreamError where it cannot.
    """
    return remove_files(folder().glob("*"), f"Remove the folder {folder()} yourself.")
