"""The models that this user's chats loaded lately. Reads only; knows only the table of preferences."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from app.chats.store import default_path

RECENT = "recent models"  # name of the preference


def recent_models(path: Path | None = None) -> Iterator[str]:
    """Yield the recently loaded models, the latest first; none if the chats cannot be read, which begins here."""
    uri = f"{(path or default_path()).absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            rows = db.execute("SELECT value FROM kept WHERE name = ?", (RECENT,)).fetchall()
    except sqlite3.Error:
        return
    for (text,) in rows:
        yield from names_in(str(text))


def names_in(text: str) -> list[str]:
    """Return the names in a stored list of models: pairs by name, files by path."""
    return [name for name in text.split("\n") if name]
