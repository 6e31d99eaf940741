"""Exports a chat to a file. Knows files and the two formats; knows no widgets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.chats.pictures import part_of, pictures_in
from app.chats.store import Chat, StoredMessage
from runtime.core.errors import SettingsError
from runtime.core.outside import expanded

Files = Mapping[str, bytes]
NO_FILES: Files = MappingProxyType({})
TOLD = {"model": "model", "measured": "numbers"}  # exported facts of a reply, and their names in the export


def export(
    chat: Chat, messages: Sequence[StoredMessage], name: str = "", with_numbers: bool = False, files: Files = NO_FILES
) -> Path:
    """Write a chat to a file, as JSON if the name ends so, else as Markdown. `with_numbers` adds each reply's numbers.
    JSON has the pictures themselves, from `files`, their bytes by hash; Markdown names them.

    Raises SettingsError.
    """
    safe = "".join(letter if letter.isalnum() else "-" for letter in chat.title).strip("-")[:40] or "chat"
    path = Path(name or f"{safe}.md")
    is_json = path.suffix == ".json"
    text = as_json(chat, messages, with_numbers, files) if is_json else as_markdown(chat, messages, with_numbers)
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


def as_markdown(chat: Chat, messages: Sequence[StoredMessage], with_numbers: bool = False) -> str:
    """Return one branch of a chat as Markdown. `with_numbers` adds the model and the speed below each reply."""
    parts = [f"# {chat.title}"]
    parts += [f"> {line}" for line in chat.system.splitlines()]
    for each in messages:
        parts.append(f"## {'You' if each.role == 'user' else 'Reply'}\n\n{each.content.strip()}")
        parts += [f"*{picture.line}*" for picture in pictures_in(each.facts)]
        told = " · ".join(filter(None, [each.facts.get("model"), each.facts.get("line")]))
        parts += [f"*{told}*"] * bool(with_numbers and told)
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, messages: Sequence[StoredMessage], with_numbers: bool = False, files: Files = NO_FILES) -> str:
    """Return one branch of a chat as JSON, messages in the format of OpenAI's API, with the pictures in `files`.
    `with_numbers` adds `model` and `numbers` to each reply.
    """
    listed: list[dict[str, Any]] = [{"role": "system", "content": chat.system}] * bool(chat.system)
    for each in messages:
        facts = {name: each.facts[kept] for kept, name in TOLD.items() if with_numbers and kept in each.facts}
        parts = [part_of(files[picture.key], picture) for picture in pictures_in(each.facts) if picture.key in files]
        content = [*parts, {"type": "text", "text": each.content}] if parts else each.content
        listed.append({"role": each.role, "content": content, **facts})
    return json.dumps({"title": chat.title, "messages": listed}, ensure_ascii=False, indent=2) + "\n"
