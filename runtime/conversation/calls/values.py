"""Reads and writes argument values in models' notations: JSON, Python, Gemma's and MiniMax's own, and finds where they
end in a stream. Knows text alone.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from runtime.conversation.calls.form import GEMMA, GEMMA_QUOTE, JSON, PYTHON, TEXT
from runtime.conversation.calls.schemas import type_of
from runtime.sampling.schema import whole

# A text, one that is written as in JSON, and a key
GEMMA_PART = re.compile(
    r'<\|"\|>(.*?)<\|"\|>|("(?:[^"\\]|\\.)*+")|(?<=[{,])\s*([^\s"{}\[\]:,][^"{}\[\]:,]*):', re.DOTALL
)
QUOTED = {'"': re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL), "'": re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL)}
OPENING, CLOSING = "{[(", "}])"
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


def refuse(uri: str) -> NoReturn:
    """Refuse to fetch a schema's external references. Raises ValueError."""
    raise ValueError(uri)


def fits(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether a value follows a schema with the root's definitions; one that cannot be read allows any."""
    if not isinstance(schema, dict):
        return True
    try:
        return jsonschema_rs.is_valid(whole(schema, root), value, retriever=refuse)
    except (ValueError, jsonschema_rs.ReferencingError):
        return True


def read_value(text: str, kinds: Sequence[str], notation: str, is_fit: Callable[[Any], bool] = lambda _: True) -> str:
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
        if type_of(value) in others and is_fit(value):
            return written
    text = text if notation == TEXT else text.strip()
    is_quoted = notation == PYTHON and len(text) > 1 and text[0] == text[-1] == "'"
    return json.dumps(text[1:-1] if is_quoted else text, ensure_ascii=False)


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
    return json.loads(GEMMA_PART.sub(as_json, text))


def as_json(part: re.Match[str]) -> str:
    """Return a text or a key of Gemma's notation as JSON has it."""
    if part[2]:
        return part[0]
    return json.dumps(part[1]) if part[3] is None else f"{json.dumps(part[3])}:"


class ValueScanner:
    """Finds the end of a value in growing text: before a mark, or without one before a comma or a closing bracket; if
    it is `bracketed`, after its own closing bracket.

    What stands between quotation marks ends nothing.
    """

    def __init__(self, quotes: Sequence[str], mark: str = "", *, bracketed: bool = False) -> None:
        self._quotes, self._mark, self._is_bracketed = quotes, mark, bracketed
        self._quote, self._depth, self._at = "", 0, 0

    def end(self, text: str) -> int | None:
        """Return the position where the value ends, reading only the text added since the last call."""
        while self._at < len(text):
            if self._quote:
                if not self._skip_quoted(text):
                    return None
                continue
            found = next((each for each in (self._mark, *self._quotes) if begins(text, self._at, each)), "")
            if found and not text.startswith(found, self._at):
                return None  # more text is needed to know
            if found in self._quotes:
                self._quote, self._at = found, self._at + len(found)
            elif found or (not self._mark and self._ends(text[self._at])):
                return self._at + self._is_bracketed
            else:
                self._at += 1
        return None

    def _skip_quoted(self, text: str) -> bool:
        """Move past the quoted text; return False if its end has not arrived."""
        if self._quote == GEMMA_QUOTE:
            end = text.find(GEMMA_QUOTE, self._at)
        else:
            end = QUOTED[self._quote].match(text, self._at).end()  # type: ignore[union-attr]  # matches anything
        has_ended = end >= 0 and text.startswith(self._quote, end)
        if has_ended:
            self._at, self._quote = end + len(self._quote), ""
        else:
            self._at = end if end >= 0 else max(self._at, len(text) - len(GEMMA_QUOTE) + 1)
        return has_ended

    def _ends(self, character: str) -> bool:
        if self._depth == self._is_bracketed and (
            character in CLOSING or (character == "," and not self._is_bracketed)
        ):
            return True
        self._depth += (character in OPENING) - (character in CLOSING)
        return False


def begins(text: str, at: int, mark: str) -> bool:
    """Whether a mark, or what may become one at the text's end, begins at a position."""
    return bool(mark) and mark.startswith(text[at : at + len(mark)])
