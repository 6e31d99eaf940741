"""The SQLite file of the chats: tables, format version, how to open it, what is read of it without opening the chats.

Knows SQL and files; knows neither widgets nor models, nor what a chat is for.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from platformdirs import user_data_path

from runtime.core.errors import SlipstreamError

VERSION = 4
LOCK_TIMEOUT = 2.0  # seconds to wait while another instance writes
MAX_CHARACTERS = 2**20  # of messages to train on
SCHEMA = """
CREATE TABLE IF NOT EXISTS chats(
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, system TEXT NOT NULL DEFAULT '', leaf INTEGER, changed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS messages(
    id INTEGER PRIMARY KEY, chat INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
    parent INTEGER, role TEXT NOT NULL,
    content TEXT NOT NULL, facts TEXT NOT NULL DEFAULT '{}');
CREATE TABLE IF NOT EXISTS kept(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS settings(
    chat INTEGER PRIMARY KEY REFERENCES chats ON DELETE CASCADE, value TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS children ON messages(chat, parent);
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(content, content='messages', content_rowid='id');
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON messages BEGIN
    INSERT INTO found(rowid, content) VALUES (new.id, new.content); END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON messages BEGIN
    INSERT INTO found(found, rowid, content) VALUES ('delete', old.id, old.content); END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF content ON messages BEGIN
    INSERT INTO found(found, rowid, content) VALUES ('delete', old.id, old.content);
    INSERT INTO found(rowid, content) VALUES (new.id, new.content); END;
CREATE TABLE IF NOT EXISTS pictures(hash TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS unseen AFTER DELETE ON messages WHEN instr(old.facts, '"pictures"') BEGIN
    DELETE FROM pictures WHERE instr(old.facts, hash)
        AND NOT EXISTS (SELECT 1 FROM messages WHERE role = 'user' AND instr(facts, hash)); END;
"""


class StoreError(SlipstreamError):
    """A chat or the file of all chats cannot be used; the text says what to do."""


def connect(path: Path | None) -> sqlite3.Connection:
    """Open or create the database; None: in memory. Raises StoreError and SQLite's errors."""
    db = sqlite3.connect(path or ":memory:", timeout=LOCK_TIMEOUT)
    try:
        prepare(db, path)
    except BaseException:
        db.close()  # Windows renames no file that is open
        raise
    return db


def prepare(db: sqlite3.Connection, path: Path | None) -> None:
    """Set the database up, with tables where it is new. Raises StoreError and SQLite's errors."""
    db.text_factory = lambda text: text.decode(errors="replace")  # invalid UTF-8 is replaced
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            f"The chats in {path} were written by a newer Slipstream (format {version}; this one knows {VERSION}). "
            "Update Slipstream, or name another file with `--chats`."
        )
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA secure_delete = ON")  # deleted content is overwritten
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    if version < VERSION:
        db.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def default_path() -> Path:
    """Return the path of this user's chats."""
    return user_data_path("slipstream", appauthor=False) / "chats.db"


def peeked(path: Path | None, query: str, *values: object) -> Iterator[tuple[str]]:
    """Yield the rows of a query, without opening the chats; none if they cannot be read."""
    uri = f"{(path or default_path()).absolute().as_uri()}?mode=ro"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as db:
        yield from db.execute(query, values)


def kept_value(name: str, path: Path | None = None) -> str:
    """Return a small value stored under that name, without opening the chats; "" if there is none, or no such file."""
    return next((str(value) for (value,) in peeked(path, "SELECT value FROM kept WHERE name = ?", name)), "")


def latest_replies(path: Path | None = None, most: int = MAX_CHARACTERS) -> list[str]:
    """Return the latest replies, newest first, up to `most` characters in all. Empty if the chats cannot be read."""
    return list(latest("assistant", path, most))


def latest_questions() -> list[str]:
    """Return the user's latest questions, each once, up to MAX_CHARACTERS in all."""
    return list(dict.fromkeys(latest("user", None, MAX_CHARACTERS)))


def latest(role: str, path: Path | None, most: int) -> Iterator[str]:
    """Yield the latest messages of a role, up to `most` characters in all."""
    for (text,) in peeked(path, "SELECT content FROM messages WHERE role = ? ORDER BY id DESC", role):
        most -= len(text)
        if most < 0:
            return
        yield text


def keep_value(name: str, value: str) -> None:
    """Store a small value under that name, without reading the chats. Raises StoreError, OSError, SQLite's errors."""
    path = default_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_new = not path.exists()
    with closing(connect(path)) as db, db:
        db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))
    if is_new:
        path.chmod(0o600)
