"""Recovery of a damaged chats file: detected, renamed, and its readable content copied.

Knows SQL and files; knows neither widgets nor models.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from app.chats.database import connect

# Fields of the first page: read and write versions (2: WAL), number of pages, free pages
WRITTEN, PAGES, UNUSED = slice(18, 20), slice(28, 32), slice(32, 40)
BEHIND = ("", "-wal", "-shm")  # suffixes of a database's files
MAX_GAP = 100_000  # rows between readable ones that are tried one by one
TABLES = {
    "chats": ("id", "title", "system", "leaf", "changed"),
    "messages": ("id", "chat", "parent", "role", "content", "facts"),
    "kept": ("name", "value"),
    "settings": ("chat", "value"),
    "pictures": ("hash", "data"),
}
NUMBERS = {"id", "chat", "leaf", "parent"}  # columns
MAY_LACK = {"leaf", "parent"}
Row = tuple[object, ...]


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether the error means that the file is not an intact database."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # errors that Python raises itself have no code
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def check(db: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError, for which `is_damaged` is true, if the database cannot be read completely."""
    if (found := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def put_aside(path: Path) -> Path:
    """Rename the file and those that belong to it, and return the new path."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    for behind in BEHIND:
        with suppress(FileNotFoundError):
            path.with_name(path.name + behind).rename(aside.with_name(aside.name + behind))
    return aside


def recover(damaged: Path, into: sqlite3.Connection) -> int:
    """Copy the readable content of a damaged file and return the number of messages."""
    return read_into(damaged, into) or read_below_first_page(damaged, into)


def read_into(damaged: Path, into: sqlite3.Connection) -> int:
    """Copy what SQLite can read and return the number of messages."""
    with closing(sqlite3.connect(damaged)) as db:
        db.text_factory = into.text_factory
        with suppress(sqlite3.DatabaseError):  # a truncated file is read as far as possible
            db.execute("PRAGMA writable_schema = ON")
        return take_over(db, into)


def read_below_first_page(damaged: Path, into: sqlite3.Connection) -> int:
    """Copy the readable content, with the first page replaced by that of an empty chats file. The first page locates
    the tables, and those of chats and messages begin at the same pages in all files.
    """
    copy = damaged.with_name(f"{damaged.name}-read")
    try:
        for behind in BEHIND[:2]:
            with suppress(FileNotFoundError):
                shutil.copyfile(damaged.with_name(damaged.name + behind), copy.with_name(copy.name + behind))
        with copy.open("r+b") as file:
            file.write(first_page(damaged.stat().st_size))
        return read_into(copy, into)
    except OSError:  # no room for a copy
        return 0
    finally:
        for behind in BEHIND:
            copy.with_name(copy.name + behind).unlink(missing_ok=True)


def first_page(n_bytes: int) -> bytes:
    """Return the first page of an empty chats file, adapted to a file of `n_bytes`."""
    with closing(connect(None)) as empty:
        page = bytearray(empty.serialize()[: empty.execute("PRAGMA page_size").fetchone()[0]])
    page[WRITTEN] = b"\2\2"
    page[PAGES] = (n_bytes // len(page)).to_bytes(4, "big")
    page[UNUSED] = bytes(8)
    return bytes(page)


def take_over(db: sqlite3.Connection, into: sqlite3.Connection) -> int:
    """Copy the readable content of a damaged database and return the number of messages."""
    chats, messages, kept, settings, pictures = (whole_rows(db, table, columns) for table, columns in TABLES.items())
    with into:
        into.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", kept)
        into.executemany("INSERT OR REPLACE INTO chats VALUES (?, ?, ?, ?, ?)", whole_chats(chats, messages))
        into.executemany("INSERT OR REPLACE INTO settings SELECT id, ?2 FROM chats WHERE id = ?1", settings)
        into.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)", whole_branches(messages))
        into.executemany("INSERT INTO pictures VALUES (?, ?)", pictures)
    return len(messages)


def readable(db: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield the readable rows of a table: from the first up, from the last down, and those in between one by one."""
    names = ", ".join(columns)
    up = list(until_error(db, f"SELECT rowid, {names} FROM {table} ORDER BY rowid"))
    last = up[-1][0] if up else -1
    down = list(until_error(db, f"SELECT rowid, {names} FROM {table} WHERE rowid > {last} ORDER BY rowid DESC"))
    yield from (row[1:] for row in up)
    for rowid in range(last + 1, min(down[-1][0], last + MAX_GAP) if down else last + MAX_GAP // 100):
        yield from (row[1:] for row in until_error(db, f"SELECT rowid, {names} FROM {table} WHERE rowid = {rowid}"))
    yield from (row[1:] for row in reversed(down))


def whole_rows(db: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[Row]:
    """Return the readable and complete rows, each once: the pages of a damaged table may lead to a row twice."""
    return list({row[0]: row for row in readable(db, table, columns) if is_whole(row, columns)}.values())


def is_whole(row: Row, columns: tuple[str, ...]) -> bool:
    """Return whether the row has all required values. SQLite reads empty columns from a half-overwritten page. A
    picture has its hash.
    """
    if columns == TABLES["pictures"]:
        return isinstance(row[1], bytes) and hashlib.sha256(row[1]).hexdigest() == row[0]
    return all(
        name in MAY_LACK if value is None else isinstance(value, int if name in NUMBERS else str | float)
        for name, value in zip(columns, row, strict=True)
    )


def until_error(db: sqlite3.Connection, query: str) -> Iterator[tuple[int, *Row]]:
    """Yield the rows of a query up to the first error."""
    with suppress(sqlite3.DatabaseError):
        yield from db.execute(query)


def whole_chats(chats: Iterable[Row], messages: Iterable[Row]) -> Iterator[Row]:
    """Yield the chats, with a new one for messages whose chat is lost, each with a leaf that exists."""
    last = {chat: number for number, chat, *_ in messages}
    known = {row[0]: row for row in chats}
    there = {number for number, *_ in messages}
    for number in known.keys() | last.keys():
        _, title, system, leaf, changed = known.get(number, (number, "Recovered chat", "", None, time.time()))
        yield number, title, system, leaf if leaf in there else last.get(number), changed


def whole_branches(messages: Iterable[Row]) -> Iterator[Row]:
    """Yield each message after its parent or, if that is lost, after the chat's message before it."""
    there, before = set[object](), dict[object, object]()
    for number, chat, parent, *rest in messages:
        yield number, chat, parent if parent is None or parent in there else before.get(chat), *rest
        there.add(number)
        before[chat] = number
