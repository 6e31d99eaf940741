"""Exports a chat to a file. Knows files and the two formats; knows no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.chats.store import Chat, StoredMessage
from app.chats.transcript import as_json, as_markdown
from runtime.core.errors import SettingsError
from runtime.models.plain_file import expanded


def export(chat: Chat, messages: Sequence[StoredMessage], name: str = "", with_numbers: bool = False) -> Path:
    """Write a chat to a file, as JSON if the name ends so, else as Markdown. `with_numbers` adds each reply's numbers.

    Raises SettingsError.
    """
    safe = "".join(letter if letter.isalnum() else "-" for letter in chat.title).strip("-")[:40] or "chat"
    path = Path(name or f"{safe}.md")
    text = (as_json if path.suffix == ".json" else as_markdown)(chat, messages, with_numbers)
    try:
        path = expanded(path)
        with path.open("x", encoding="utf8") as file:
            file.write(text)
    except FileExistsError as error:
        raise SettingsError(f"{path} exists already. Name another file: /export other.md") from error
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be written ({error.strerror}). Name another place: /export other.md"
        ) from error
    return path.resolve()
