"""A chat as text, for people and for programs. Knows messages; writes no files."""

from __future__ import annotations

import json
from collections.abc import Sequence

from app.chats.store import Chat, StoredMessage


def as_markdown(chat: Chat, messages: Sequence[StoredMessage]) -> str:
    """One branch of a chat for people."""
    parts = [f"# {chat.title}"]
    parts += [f"> {line}" for line in chat.system.splitlines()]
    parts += [f"## {'You' if each.role == 'user' else 'Reply'}\n\n{each.content.strip()}" for each in messages]
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, messages: Sequence[StoredMessage]) -> str:
    """One branch of a chat for programs, messages in the form of OpenAI's API."""
    listed = [{"role": "system", "content": chat.system}] * bool(chat.system)
    listed += [{"role": each.role, "content": each.content} for each in messages]
    return json.dumps({"title": chat.title, "messages": listed}, ensure_ascii=False, indent=2) + "\n"
