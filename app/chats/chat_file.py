"""The open file of the chats. If writing fails, it switches to memory, and back when the file works again.

Knows SQLite's errors and files; knows no chat.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from app.chats import recovery
from app.chats.database import LOCK_TIMEOUT, StoreError, connect

HEADER = b"SQLite format 3"


class ChatFile:
    """A database at a path, or in memory while `problem` gives the reason. A file at the usual path is Slipstream's, so
    it is put aside if it is damaged.

    Raises StoreError for a newer format, and for a file at another path that is not a database.
    """

    def __init__(self, path: Path, *, is_usual: bool) -> None:
        self.path, self.problem, self._is_usual = path, "", is_usual
        self.remark = ""  # what happened when it was opened
        self._left: sqlite3.Connection | None = None  # the file that cannot be written, while in memory
        self._version = self._tried = 0.0  # data version of that file when it was left; time of the last retry
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = self._opened(path)
            path.chmod(0o600)
        except (OSError, sqlite3.Error) as error:
            self._db = connect(None)
            self._note(error)

    def _opened(self, path: Path) -> sqlite3.Connection:
        """Return the database, with the readable part of a damaged one. Raises StoreError if the file is something
        else.
        """
        db: sqlite3.Connection | None = None
        try:
            db = connect(path)
            recovery.check(db)
            return db
        except sqlite3.DatabaseError as error:
            if db is not None:
                db.close()
            if not recovery.is_damaged(error):
                raise
        if not self._is_usual and not has_header(path):
            raise StoreError(f"{path} is not a file of chats. Name another one, or a new one, with `--chats`.")
        aside = recovery.put_aside(path)
        db = connect(path)
        n = recovery.recover(aside, db)
        self.remark = (
            f"The file of chats was damaged: {n} message{'s' * (n != 1)} could be recovered. "
            f"The damaged file is kept as {aside}."
        )
        return db

    def _note(self, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) else error
        then = "Make it writable and start again." if self._left is None else "They are saved as soon as that works."
        self.problem = f"Chats are kept in memory only: {self.path} cannot be written ({reason}). {then}"

    def write(self, statement: str, *values: object) -> int:
        """Run and commit one statement and return the new row's id. Switches to memory if the file fails."""
        if self._left is not None and time.monotonic() - self._tried > LOCK_TIMEOUT:
            self._return()
        try:
            return self._commit(statement, *values)
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            self._leave(error)
            return self._commit(statement, *values)

    def _commit(self, statement: str, *values: object) -> int:
        with self._db:
            return self._db.execute(statement, values).lastrowid or 0

    def read(self, query: str, *values: object) -> list[Any]:
        """Return the rows. If the file has been damaged meanwhile, return its readable rows."""
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            if not recovery.is_damaged(error):
                raise
            self._leave(error)
            return self._db.execute(query, values).fetchall()

    def _leave(self, error: sqlite3.DatabaseError) -> None:
        """Continue in memory, with all content of the file."""
        memory = connect(None)
        self._db.rollback()
        if recovery.is_damaged(error):
            recovery.take_over(self._db, memory)
            self._db.close()
            self.problem = (
                f"{self.path} is damaged ({error}), so chats are kept in memory. Restart to recover what can be read."
            )
        else:
            self._db.backup(memory)
            self._left, self._version, self._tried = self._db, data_version(self._db), time.monotonic()
            self._note(error)
        self._db = memory

    def _return(self) -> None:
        """Return to the file, if it can be written again and nobody else has written it meanwhile."""
        self._tried = time.monotonic()
        if self._left is None:
            return
        with suppress(sqlite3.Error):
            if data_version(self._left) != self._version:
                self._save_copy()
                return
            self._db.backup(self._left)
            self._db.close()
            self._db, self._left, self.problem = self._left, None, ""

    def _save_copy(self) -> None:
        """Write the content of memory to its own file, because another instance has written chats meanwhile."""
        copy = self.path.with_name(f"{self.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}{self.path.suffix}")
        kept = sqlite3.connect(copy)
        self._db.backup(kept)
        assert self._left is not None
        self._left.close()
        self._db.close()
        self._db, self._left, self.path = kept, None, copy
        self.problem = f"Another window has changed the chats meanwhile, so this window's are kept in {copy}."

    def _keep_elsewhere(self) -> None:
        """Write the content of memory to the folder for temporary files, because the chats' file still cannot be
        written.
        """
        self.problem = f"{self.path} still cannot be written"
        try:
            copy = Path(tempfile.mkdtemp(prefix="slipstream-")) / self.path.name
            with closing(sqlite3.connect(copy)) as kept:
                self._db.backup(kept)
        except (OSError, sqlite3.Error) as error:
            self.problem += f", and no other place either ({error}): messages since then are lost."
        else:
            self.problem += f", so all chats are kept in {copy}. Move that file to a permanent place; --chats opens it."

    def close(self) -> None:
        """Close the file. Unwritten content is written if that works again. Otherwise it goes elsewhere, and `problem`
        names the place.
        """
        self._return()
        if self._left is not None:
            self._keep_elsewhere()
        self._db.close()
        if self._left is not None:
            self._left.close()


def has_header(path: Path) -> bool:
    """Return whether the file begins as a database does."""
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def data_version(db: sqlite3.Connection) -> int:
    """Return a number that changes when another process writes the file."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])
