"""Reads and writes argument values in models' notations: JSON, Python and some models' own. Knows text alone."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema_rs

from runtime.conversation.calls.form import GEMMA, JSON, PYTHON, TEXT
from runtime.conversation.calls.gemma_values import from_gemma, gemma
from runtime.conversation.calls.json_values import refuse
from runtime.conversation.calls.schemas import type_of
from runtime.sampling.schema import whole

ELEMENT = re.compile(r"(?:\]<\]\w+\[>\[)?(</?[\w.-]+>)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def written(value: Any, notation: str) -> str:
    """Return the value in a notation."""
    if notation == PYTHON:
        return repr(value)
    if notation == GEMMA:
        return gemma(value)
    return value if isinstance(value, str) and notation != JSON else json.dumps(value, ensure_ascii=False)


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


class Fits:
    """Whether values follow a schema; one that cannot be read allows any."""

    def __init__(self, schema: Any, root: Mapping[str, Any]) -> None:
        self._schema, self._root = schema, root

    def __call__(self, value: Any) -> bool:
        """Whether a value follows it."""
        if not isinstance(self._schema, dict):
            return True
        try:
            return jsonschema_rs.is_valid(whole(self._schema, self._root), value, retriever=refuse)
        except (ValueError, jsonschema_rs.ReferencingError):
            return True


def read_value(text: str, kinds: Sequence[str], notation: str, fits: Callable[[Any], bool] | None = None) -> str:
    """Return the value of a text as JSON, or the text itself if it is a value of none of these types, or does not fit.

    If text is written without quotes, only values of other types are parsed.
    """
    others = [kind for kind in kinds if kind != "string"] if notation == TEXT else kinds
    for reader in (from_gemma,) if notation == GEMMA else READERS:
        try:
            value = reader(text.strip())
            written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except FAULTS:
            continue
        if type_of(value) in others and (fits is None or fits(value)):
            return written
    text = text if notation == TEXT else text.strip()
    is_quoted = notation == PYTHON and len(text) > 1 and text[0] == text[-1] == "'"
    return json.dumps(text[1:-1] if is_quoted else text, ensure_ascii=False)
