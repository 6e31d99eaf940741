"""Reads and writes argument values in models' notations: JSON, Python and some models' own. Knows text alone."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from runtime.conversation.calls.form import GEMMA, GEMMA_QUOTE, JSON, PYTHON, TEXT
from runtime.conversation.calls.schemas import type_of

ELEMENT = re.compile(r"(?:\]<\]\w+\[>\[)?(</?[\w.-]+>)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
BARE_KEY = re.compile(r"(?<![\w.$-])([\w.$-]++)\s*+:")


def written(value: Any, notation: str) -> str:
    """Return the value in a notation."""
    if notation == PYTHON:
        return repr(value)
    if notation == GEMMA:
        return gemma(value)
    return value if isinstance(value, str) and notation != JSON else json.dumps(value, ensure_ascii=False)


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
    parts = text.split(GEMMA_QUOTE)
    parts[0::2] = [BARE_KEY.sub(r'"\1":', part) for part in parts[0::2]]
    parts[1::2] = [json.dumps(part) for part in parts[1::2]]
    return json.loads("".join(parts))


def from_elements(text: str) -> Any:
    """Return the list or dict of nested elements, MiniMax-M3's notation. Raises ValueError."""
    parts = [part for part in ELEMENT.split(text) if part and not part.isspace()]
    value, rest = _elements(parts)
    if rest or isinstance(value, str):
        raise ValueError(text)
    return value


def _elements(parts: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Return the value of the first parts, and the remaining parts. Raises ValueError."""
    if not parts or not parts[0].startswith("<"):
        text = parts[0] if parts else ""
        return (json.loads(text) if NUMBER.fullmatch(text) or text in ("true", "false") else text), parts[1:]
    pairs = []
    while parts and not parts[0].startswith("</"):
        key = parts[0][1:-1]
        value, parts = _elements(parts[1:])
        if not parts or parts[0] != f"</{key}>":
            raise ValueError(key)
        pairs.append((key, value))
        parts = parts[1:]
    is_list = all(key == "item" for key, _ in pairs)
    return ([value for _, value in pairs] if is_list else dict(pairs)), parts


READERS: tuple[Callable[[str], Any], ...] = (json.loads, ast.literal_eval, from_elements)
FAULTS = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


def read_value(text: str, kinds: Sequence[str], notation: str) -> str:
    """Return the value of a text as JSON, or the text itself if it is a value of none of these types.

    If text is written without quotes, only values of other types are parsed.
    """
    others = [kind for kind in kinds if kind != "string"] if notation == TEXT else kinds
    for reader in (from_gemma,) if notation == GEMMA else READERS:
        try:
            value = reader(text.strip())
            if type_of(value) in others:
                return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except FAULTS:
            continue
    text = text if notation == TEXT else text.strip()
    is_quoted = notation == PYTHON and len(text) > 1 and text[0] == text[-1] == "'"
    return json.dumps(text[1:-1] if is_quoted else text, ensure_ascii=False)
