"""What this user loaded and wrote lately, read without opening the chats: names of models, and messages to train on.

Knows only the tables of preferences and of messages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from app.chats.database import default_path, kept_value

RECENT = "recent models"  # name of the preference
REMEMBERED = 8  # models
MAX_CHARACTERS = 2**20  # characters
LATEST = "SELECT content FROM messages WHERE role = ? ORDER BY id DESC"


def recent_models(path: Path | None = None) -> Iterator[str]:
    """Yield the recently loaded models, the latest first; none if the chats cannot be read, which begins here."""
    yield from names_in(kept_value(RECENT, path))


def names_in(text: str) -> list[str]:
    """Return the names in a stored list of models: pairs by name, files by path."""
    return [name for name in text.split("\n") if name]


def with_latest(name: str, recent: Sequence[str]) -> str:
    """Return the list of recent models, to be stored, after that one was loaded."""
    return "\n".join([name, *(each for each in recent if each != name)][:REMEMBERED])


def latest_replies(path: Path | None = None, most: int = MAX_CHARACTERS) -> list[str]:
    """Return the latest replies, newest first, up to `most` characters in all. Empty if the chats cannot be read."""
    return latest("assistant", path, most)


def latest_questions(path: Path | None = None, most: int = MAX_CHARACTERS) -> list[str]:
    """Return the user's latest questions, each once, up to `most` characters in all."""
    return list(dict.fromkeys(latest("user", path, most)))


def latest(role: str, path: Path | None, most: int) -> list[str]:
    """Return the latest messages of a role."""
    uri = f"{(path or default_path()).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            return list(within(db.execute(LATEST, (role,)), most))
    except sqlite3.Error:
        return []


def within(rows: Iterable[tuple[str]], most: int) -> Iterator[str]:
    """Yield the first texts, up to `most` characters in all."""
    for (text,) in rows:
        most -= len(text)
        if most < 0:
            return
        yield text
