"""The models that this user loaded lately. Knows only the table of preferences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from app.chats.database import kept_value

RECENT = "recent models"  # name of the preference
REMEMBERED = 8  # models


def recent_models(path: Path | None = None) -> Iterator[str]:
    """Yield the recently loaded models, the latest first; none if the chats cannot be read, which begins here."""
    yield from names_in(kept_value(RECENT, path))


def names_in(text: str) -> list[str]:
    """Return the names in a stored list of models: pairs by name, files by path."""
    return [name for name in text.split("\n") if name]


def with_latest(name: str, recent: Sequence[str]) -> str:
    """Return the list of recent models, to be stored, after that one was loaded."""
    return "\n".join([name, *(each for each in recent if each != name)][:REMEMBERED])
