"""Replaces images and other non-text parts of a conversation by short text notes, in tool results and earlier messages.

In the user's last message they are refused instead, so that one image does not end a session. Knows the parts of all
three interfaces, as plain data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from app.server.fields import MEDIA, TEXTS

NOTE = "[{} left out: this model reads text only]"
NOTED = re.compile(r"\[[\w -]{1,40} left out: this model reads text only\]")
LONGEST_KIND = 40  # characters


def with_notes(messages: object) -> object:
    """Return a request's messages or items with notes in place of what is left out. A value that is no list is returned
    unchanged.
    """
    if not isinstance(messages, list):
        return messages
    asked = [i for i, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"]
    return [noted(message, is_last=i in asked[-1:]) for i, message in enumerate(messages)]


def noted(message: Any, is_last: bool) -> Any:
    """Return one message or item with its notes. With `is_last`, its own media stay, so that they are refused later."""
    if not isinstance(message, dict):
        return message
    if message.get("type") == "function_call_output":
        return replaced(message, "output", readable)
    if message.get("role") in ("tool", "function"):
        return replaced(message, "content", readable)
    return replaced(message, "content", result_read if is_last else part_read)


def replaced(holder: dict[str, Any], key: str, read: Any) -> dict[str, Any]:
    """Return the object with `read` applied to each part of the list under `key`."""
    parts = holder.get(key)
    return holder | {key: [read(part) for part in parts]} if isinstance(parts, list) else holder


def result_read(part: Any) -> Any:
    """Return the block. If it is a tool result, non-text parts inside it become notes."""
    is_result = isinstance(part, dict) and part.get("type") == "tool_result"
    return replaced(part, "content", readable) if is_result else part


def part_read(part: Any) -> Any:
    """Return a part of an earlier message, with media as notes."""
    kind = part.get("type") if isinstance(part, dict) else None
    return readable(part) if isinstance(kind, str) and kind in MEDIA else result_read(part)


def readable(part: Any) -> Any:
    """Return a part of a result as text: its own text, that of a document or a search result, or a note."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind in TEXTS:
        return part
    texts = list(texts_in(part))
    heads = [head for head in (part.get("title"), part.get("source")) if isinstance(head, str)]
    return {"type": "text", "text": "\n".join([*heads, *texts]) if texts else note(kind)}


def texts_in(part: Any) -> Iterator[str]:
    """Yield the texts of a part and of its source."""
    for key in ("text", "content"):
        found = part.get(key)
        yield from [found] if isinstance(found, str) else ()
        for inner in found if isinstance(found, list) else ():
            if isinstance(inner, dict) and isinstance(inner.get("text"), str):
                yield inner["text"]
    source = part.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        yield source["data"]
    elif isinstance(source, dict) and source.get("type") == "content":
        yield from texts_in({"content": source.get("content")})


def note(kind: str) -> str:
    """Return the note for a part of this kind."""
    return NOTE.format(re.sub(r"[^\w-]", " ", MEDIA.get(kind, kind))[:LONGEST_KIND].replace("_", " "))
