"""Past replies on disk as token ids, one SQLite file per model and vocabulary, private to the user and bounded in size.

Replies are private, so the folder and its files are closed to other users (0700, 0600). Processes may share a file,
which is open only during a query or a change. A damaged file, or one of another format, is removed. If nothing can be
written, nothing is kept; failures raise no error.
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
from runtime.core.private_files import KEY, close_to_others, make_private_folder, own_files, remove_files

MAX_BYTES = 512 * 1024  # bytes of all replies in a file: 130,000 tokens
KEPT = 0.75  # fraction of MAX_BYTES that remains when the oldest replies are dropped
LOCK_TIMEOUT = 0.2  # seconds to wait for another process that is writing
DAMAGED = -1  # returned as the id of the newest reply when the file is damaged
ON_DISK = np.dtype("<i4")
# An id is the time at which the reply was stored, in nanoseconds: unlike a count, it is not reused after a wipe
SCHEMA = "CREATE TABLE IF NOT EXISTS replies(id INTEGER PRIMARY KEY, tokens BLOB NOT NULL)"
NEWEST = "SELECT max(id) FROM replies"
ADD = "INSERT INTO replies SELECT max(?, coalesce(max(id) + 1, 0)), ? FROM replies"
N_BYTES = "sum(length(tokens) + 16)"  # including the overhead of a row
DROP_OLDEST = f"""
DELETE FROM replies WHERE (SELECT {N_BYTES} FROM replies) > ? AND id IN (
    SELECT id FROM (SELECT id, {N_BYTES} OVER (ORDER BY id DESC) AS n_bytes FROM replies) WHERE n_bytes > ?)
"""

log = logging.getLogger(__name__)


def folder() -> Path:
    """Return the folder of the replies of all models."""
    return user_data_path("slipstream") / "replies"


class Replies:
    """One file of past replies."""

    def __init__(self, path: Path, n_vocab: int, max_bytes: int = MAX_BYTES) -> None:
        self.path, self.n_vocab, self.max_bytes = path, n_vocab, max_bytes
        self.max_tokens = max_bytes // ON_DISK.itemsize
        self._seen: int | None = None  # the id of the newest reply that this process read or stored

    def has_changed(self) -> bool:
        """Return whether another process stored a reply or wiped the file."""
        return self._newest() != self._seen

    def _newest(self) -> int | None:
        """Return the id of the newest reply, or None; a file that stays locked counts as unchanged."""
        try:
            with self._opened() as db:
                newest: int | None = db.execute(NEWEST).fetchone()[0]
        except sqlite3.OperationalError as error:
            return None if error.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN else self._seen
        except sqlite3.DatabaseError:
            return DAMAGED
        return newest

    def read(self) -> list[Tokens]:
        """Return the stored replies, oldest first; none if they cannot be read."""
        rows: list[tuple[int, object]] = []
        try:
            with self._opened() as db:
                # A query alone does not notice a truncated file
                if db.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError
                rows = db.execute("SELECT id, tokens FROM replies ORDER BY id").fetchall()
        except sqlite3.OperationalError as error:
            log.info("Past replies cannot be read (%s), so nothing is drafted from them.", error)
        except sqlite3.DatabaseError:
            log.warning("The file of past replies %s was damaged and is replaced.", self.path)
            with suppress(OSError):
                self.path.unlink()
        self._seen = rows[-1][0] if rows else self._newest()
        return [reply for _, tokens in rows if (reply := self._checked(tokens)) is not None]

    def _checked(self, tokens: object) -> Tokens | None:
        """Return the reply of a row, or None if it is not of this vocabulary."""
        if not isinstance(tokens, bytes) or len(tokens) % ON_DISK.itemsize:
            return None
        reply = np.frombuffer(tokens, dtype=ON_DISK).astype(np.int32)
        return reply if reply.view(np.uint32).max(initial=0) < self.n_vocab else None

    def append(self, reply: Tokens) -> None:
        """Store a reply if possible; the oldest are dropped when the file would become too large."""
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
        """Open the database if its file exists, and commit changes at the end. Raises sqlite3.Error."""
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, timeout=LOCK_TIMEOUT, uri=True)) as db, db:
            db.execute("PRAGMA synchronous = OFF")  # losing replies in a power cut does little harm
            yield db


def forget() -> int:
    """Remove the stored replies of all models and return their size in bytes.

    Raises SlipstreamError if a file cannot be removed.
    """
    return remove_files(own_files(folder(), rf"{KEY}(-journal)?"), f"Remove the folder {folder()} yourself.")
