"""A chat as text for people and for programs. Knows messages; writes no files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from app.chats.store import Chat, StoredMessage

TOLD = {"model": "model", "measured": "numbers"}  # exported facts of a reply, and their names in the export


def as_markdown(chat: Chat, messages: Sequence[StoredMessage], with_numbers: bool = False) -> str:
    """Return one branch of a chat as Markdown. `with_numbers` adds the model and the speed below each reply."""
    parts = [f"# {chat.title}"]
    parts += [f"> {line}" for line in chat.system.splitlines()]
    for each in messages:
        parts.append(f"## {'You' if each.role == 'user' else 'Reply'}\n\n{each.content.strip()}")
        told = " · ".join(filter(None, [each.facts.get("model"), each.facts.get("line")]))
        parts += [f"*{told}*"] * bool(with_numbers and told)
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, messages: Sequence[StoredMessage], with_numbers: bool = False) -> str:
    """Return one branch of a chat as JSON, messages in the format of OpenAI's API. `with_numbers` adds `model` and
    `numbers` to each reply.
    """
    listed: list[dict[str, Any]] = [{"role": "system", "content": chat.system}] * bool(chat.system)
    for each in messages:
        facts = {name: each.facts[kept] for kept, name in TOLD.items() if with_numbers and kept in each.facts}
        listed.append({"role": each.role, "content": each.content, **facts})
    return json.dumps({"title": chat.title, "messages": listed}, ensure_ascii=False, indent=2) + "\n"
