"""Reads JSON values out of a reply's text: in fences, between tags, several in a row. Knows no calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from runtime.conversation.calls.matching import before_overlap

TOOLS = "<tools>"
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
TAG = re.compile(r"</?(?:tools|tool_call)>")
CLOSERS = re.compile(r"^(?:\s*\})+")
AFTER = re.compile(r"\s*\n\s*\w")  # text on a line of its own


def values_in(text: str) -> list[Any]:
    """Return the JSON values of a text, without fences and tags around them; none if there is any other text.

    Lines after values without a fence may be text: a model that goes on after a call makes its result up.
    """
    blocks = FENCED.findall(text)
    values, rest = leading_values(TAG.sub(" ", "\n".join(blocks) if blocks else text))
    around = FENCED.sub("", text).strip() if blocks else ""
    is_made_up = not blocks and AFTER.match(rest) is not None
    return values if is_made_up or not (rest or around) else []


def leading_values(text: str) -> tuple[list[Any], str]:
    """Return the consecutive JSON values that a text begins with, of a list its elements; and the rest.

    An object may have its outer braces twice, as the template of Qwen2.5-Coder shows calls.
    """
    values: list[Any] = []
    while start := text.lstrip(" \t\r\n,;"):
        is_doubled = start.startswith("{{")
        try:
            value, end = json.JSONDecoder(parse_constant=refuse).raw_decode(start[is_doubled:])
        except (ValueError, RecursionError):
            return values, text
        values += value if isinstance(value, list) else [value]
        text = start[end + is_doubled :]
        text = CLOSERS.sub("", text) if is_doubled else text
    return values, ""


def before_tags(text: str, tags: Sequence[str]) -> int:
    """Return the length of the text before the next tag, or before what may become one; at least 1."""
    found = [at for tag in tags if (at := text.find(tag, 1)) > 0]
    return max(1, min([len(text), *found, *(before_overlap(text, tag) for tag in tags)]))


def begins(text: str, tags: Sequence[str]) -> bool:
    """Whether the text begins with one of the tags, or is the beginning of one."""
    return any(text.startswith(tag) or tag.startswith(text) for tag in tags)


def refuse(uri: str) -> NoReturn:
    """Refuse to fetch a schema's external references. Raises ValueError."""
    raise ValueError(uri)
