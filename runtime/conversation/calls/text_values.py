"""Expresses what a JSON schema says about a text as an expression of a terminal in Lark, for texts that are written
without JSON's quotation marks.

Knows JSON schemas; knows no forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from runtime.conversation.calls.rules import quoted
from runtime.conversation.calls.schemas import DEEPEST, parts_of, types_of
from runtime.conversation.calls.text_formats import FORMATS
from runtime.sampling.schema import number, resolved

if TYPE_CHECKING:
    from llguidance import LLTokenizer

LENGTHS = "minLength", "maxLength"
ANYTHING = "(?s:.*)"
PIECES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)  # escapes, classes and characters of a pattern


class TextExpressions:
    """The texts that schemas of one function's arguments allow."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.lost: dict[str, None] = {}  # keywords that could not be enforced

    def of(self, schema: Any, depth: int = DEEPEST) -> str:
        """Return the texts that a schema allows, or "" if it allows all."""
        if not isinstance(schema, dict) or not depth:
            return ""
        parts = list(own_parts(schema))
        if isinstance(schema.get("$ref"), str):
            parts.append(("$ref", self.of(resolved(schema["$ref"], self._root), depth - 1)))
        parts += [("allOf", self.of(part, depth - 1)) for part in parts_of(schema, "allOf")]
        for key in ("anyOf", "oneOf"):
            each = [self.of(part, depth - 1) for part in parts_of(schema, key) if self._has_text(part)]
            parts += [(key, joined(each, "|"))] if all(each) else []
        return self._combined(parts)

    def _has_text(self, schema: Any) -> bool:
        return "string" in types_of(schema, self._root)

    def _combined(self, parts: Iterable[tuple[str, str]]) -> str:
        """Return the texts that all parts allow, without those parts that leave none."""
        found = list[str]()
        for keyword, part in parts:
            if part and part not in found:
                if is_possible(joined([*found, part], "&")):
                    found.append(part)
                else:
                    self.lost[keyword] = None
        return joined(found, "&")


def joined(parts: list[str], sign: str) -> str:
    """Return expressions as one."""
    return f"({f' {sign} '.join(parts)})" if len(parts) > 1 else "".join(parts)


def own_parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (keyword, expression) of a schema's own keywords."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and (texts := [value for value in values if isinstance(value, str)]):
        yield "enum", f"({' | '.join(map(quoted, texts))})"
    if isinstance(schema.get("pattern"), str):
        yield "pattern", pattern_expression(schema["pattern"])
    if (form := FORMATS.get(str(schema.get("format")))) is not None:
        yield "format", f"/{regex_in_lark(form)}/"
    least, most = (int(schema[key]) if number(schema.get(key)) is not None else None for key in LENGTHS)
    if least or most is not None:
        yield LENGTHS[most is not None], f"/(?s:.{{{least or 0},{'' if most is None else most}}})/"


def pattern_expression(pattern: str) -> str:
    """Return the texts in which a pattern of a schema occurs. It may have anchors at the ends of its alternatives."""
    found = list[str]()
    for parts in alternatives(pattern):
        begins, ends = parts[:1] == ["^"], parts[-1:] == ["$"]
        body = "".join(parts[begins : len(parts) - ends])
        found.append(f"{'' if begins else ANYTHING}(?:{body}){'' if ends else ANYTHING}")
    return f"/{regex_in_lark('|'.join(found))}/"


def regex_in_lark(pattern: str) -> str:
    """Return a regular expression as Lark has it between slashes."""
    from llguidance import regex_to_lark

    return regex_to_lark(pattern, "dw").replace("\n", r"\n").replace("\r", r"\r")


def alternatives(pattern: str) -> list[list[str]]:
    """Return the parts of a regular expression between bars that are in no group and no class, in pieces."""
    found, depth = [list[str]()], 0
    for piece in PIECES.findall(pattern):
        depth += (piece == "(") - (piece == ")")
        if piece == "|" and not depth:
            found.append([])
        else:
            found[-1].append(piece)
    return found


@lru_cache(maxsize=1024)
def is_possible(expression: str) -> bool:
    """Whether an expression can be compiled, and allows any text."""
    from llguidance import LLMatcher

    grammar = LLMatcher.grammar_from_lark(f"start: T\nT: {expression}")
    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return not matcher.is_error()


@cache
def byte_tokenizer() -> LLTokenizer:
    """Return the vocabulary of all bytes."""
    from llguidance import LLTokenizer

    return LLTokenizer("byte")
