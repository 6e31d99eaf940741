"""Replaces parts of a conversation that a model cannot read by short text notes, in tool results and earlier messages.

In the user's last message they are refused instead, so that one image does not end a session. Documents and search
results that have a text become that text; what another server's own tools left behind is left out. Knows the parts of
all three interfaces, as plain data.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

from pydantic import ValidationInfo

from app.server.fields import MEDIA, TEXTS, sees_images

NOTE = "[{} left out: this model reads text only]"
NOTED = re.compile(r"\[[\w -]{1,40} left out: this model reads text only\]")
LONGEST_KIND = 40  # characters
READABLE = ("document", "search_result", "compaction")  # parts with a text under names of their own
# Blocks of Anthropic's server about its own tools and models, which say nothing to another model
FOREIGN = re.compile(r"server_tool_use|\w+_tool_result|mcp_\w+|container_upload|compaction|fallback|tool_addition")
Read = Callable[[Any], Any]
log = logging.getLogger(__name__)


@lru_cache(maxsize=256)
def log_left_out(what: str, kind: str) -> None:
    """Log once that something of this type was left out of a request."""
    log.warning("Left out of requests: %s of type '%s', which this server does not have.", what, named(kind))


def with_notes(messages: object, info: ValidationInfo) -> object:
    """Return a request's messages or items with notes in place of what is left out. A value that is no list is returned
    unchanged.
    """
    if not isinstance(messages, list):
        return messages
    asked = [i for i, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"]
    sees = sees_images(info)
    found = [noted(message, i in asked[-1:], sees) for i, message in enumerate(messages)]
    return [after for before, after in zip(messages, found, strict=True) if not has_lost_all(before, after)]


def noted(message: Any, is_last: bool, sees: bool) -> Any:
    """Return one message or item with its notes. With `is_last`, its own media stay, so that they are refused later. So
    do images for a model that `sees` them.
    """
    if not isinstance(message, dict):
        return message
    of_result = partial(kept_or_read, sees, readable)
    if message.get("type") == "function_call_output":
        return replaced(message, "output", of_result)
    if message.get("role") in ("tool", "function"):
        return replaced(message, "content", of_result)
    parts = message.get("content")
    native = {"content": [part for part in parts if not is_foreign(part)]} if isinstance(parts, list) else {}
    read = partial(asked_read if is_last else part_read, of_result)
    return replaced(message | native, "content", partial(kept_or_read, sees, read))


def kept_or_read(sees: bool, read: Read, part: Any) -> Any:
    """Return a part as it is if it is an image that the model sees, else as it is read."""
    return part if sees and MEDIA.get(kind_of(part)) == "image" else read(part)


def has_lost_all(before: Any, after: Any) -> bool:
    """Whether everything in a message was left out."""
    return isinstance(after, dict) and after.get("content") == [] != before.get("content")


def replaced(holder: dict[str, Any], key: str, read: Read) -> dict[str, Any]:
    """Return the object with `read` applied to each part of the list under `key`."""
    parts = holder.get(key)
    return holder | {key: [read(part) for part in parts]} if isinstance(parts, list) else holder


def kind_of(part: Any) -> str:
    """Return the type of a part; "" if it has none."""
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""


def is_foreign(part: Any) -> bool:
    """Whether a block is left out, which is logged. One that defines a tool, or that has a text, is not."""
    kind = kind_of(part)
    if not FOREIGN.fullmatch(kind) or kind_of(part.get("tool")) == "tool_definition" or is_text(part):
        return False
    log_left_out("blocks", kind)
    return True


def is_text(part: Any) -> bool:
    """Whether a part of its own kind has a text."""
    return kind_of(part) in READABLE and any(texts_in(part))


def asked_read(of_result: Read, part: Any) -> Any:
    """Return a part of the last question: the text of a document, and tool results with their parts read."""
    if kind_of(part) == "tool_result":
        return replaced(part, "content", of_result)
    return readable(part) if is_text(part) else part


def part_read(of_result: Read, part: Any) -> Any:
    """Return a part of an earlier message, with media as notes."""
    return readable(part) if kind_of(part) in MEDIA else asked_read(of_result, part)


def readable(part: Any) -> Any:
    """Return a part of a result as text: its own text, that of a document or a search result, or a note."""
    kind = kind_of(part)
    if not kind or kind in TEXTS:
        return part
    texts = list(texts_in(part))
    heads = [head for name in ("title", "source", "context") if isinstance(head := part.get(name), str)]
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
    return NOTE.format(named(MEDIA.get(kind, kind)).replace("_", " "))


def named(kind: str) -> str:
    """Return a type's name without characters that names do not have."""
    return re.sub(r"[^\w-]", " ", kind)[:LONGEST_KIND]
