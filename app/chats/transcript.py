"""A chat as text, for people and for programs. Knows what was said; writes no files."""

from __future__ import annotations

import json

from app.chats.store import Chat, Said


def as_markdown(chat: Chat, said: list[Said]) -> str:
    """A branch for people."""
    parts = [f"# {chat.title}"]
    parts += [f"> {line}" for line in chat.system.splitlines()]
    parts += [f"## {'You' if each.role == 'user' else 'Reply'}\n\n{each.content.strip()}" for each in said]
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, said: list[Said]) -> str:
    """A branch for programs, messages in the form of OpenAI's API."""
    messages = [{"role": "system", "content": chat.system}] * bool(chat.system)
    messages += [{"role": each.role, "content": each.content} for each in said]
    return json.dumps({"title": chat.title, "messages": messages}, ensure_ascii=False, indent=2) + "\n"
