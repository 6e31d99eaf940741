"""Reads and writes values in Gemma 4's notation: JSON with bare keys and its own quotation marks. Knows text alone."""

from __future__ import annotations

import json
import re
from typing import Any

from runtime.conversation.calls.form import GEMMA_QUOTE

SPACES, GEMMA_END = re.compile(r"\s*"), re.compile(r"\s*([}\]])")
DECODER = json.JSONDecoder()


def gemma(value: Any) -> str:
    """Return the value in Gemma 4's notation: JSON with bare keys and its own quotation marks."""
    if isinstance(value, str):
        return f"{GEMMA_QUOTE}{value}{GEMMA_QUOTE}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{gemma(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma, value)) + "]"
    return json.dumps(value)


def from_gemma(text: str) -> Any:
    """Return the value of a text in Gemma's notation. Raises ValueError."""
    value, end = _gemma(text, 0)
    if text[end:].strip():
        raise ValueError(text)
    return value


def _gemma(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at a position, and where it ends. Raises ValueError."""
    at = SPACES.match(text, at).end()  # type: ignore[union-attr]  # matches anything
    if text.startswith(GEMMA_QUOTE, at):
        end = text.index(GEMMA_QUOTE, at + len(GEMMA_QUOTE))
        return text[at + len(GEMMA_QUOTE) : end], end + len(GEMMA_QUOTE)
    if text[at : at + 1] in ("{", "["):
        return _gemma_parts(text, at)
    return DECODER.raw_decode(text, at)


def _gemma_parts(text: str, at: int) -> tuple[Any, int]:
    """Return the map or list that begins at a position, and where it ends. Raises ValueError."""
    found, is_map, at = list[Any](), text[at] == "{", at + 1
    while not (end := GEMMA_END.match(text, at)):
        if found:
            at = text.index(",", at) + 1
        key = ""
        if is_map and text[at : at + 1] == '"':
            key, at = DECODER.raw_decode(text, at)
        elif is_map:
            key, at = text[at : text.index(":", at)], text.index(":", at)
        value, at = _gemma(text, at + is_map)
        found.append((key, value) if is_map else value)
    if (end[1] == "}") != is_map:
        raise ValueError(text)
    return dict(found) if is_map else found, end.end()
