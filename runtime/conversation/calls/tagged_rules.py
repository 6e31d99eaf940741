"""Builds grammar rules for arguments written one by one, each key and value between literals of its own.

Knows forms and JSON schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import KEY, TaggedArguments, ValueStyle, filled
from runtime.conversation.calls.rules import USUAL_JSON, Rules, ending_in, excluding, quoted
from runtime.conversation.calls.schemas import narrowed, rooted, texts_of, types_of
from runtime.sampling.schema import whole

KEYS = "/[a-zA-Z_][a-zA-Z0-9_.-]{0,63}/"  # for a schema that names no keys
WORDS = {"boolean": ("True", "False"), "null": ("None",)}  # in Python's notation
PYTHON_TEXT = r"/'([^'\\\\\n]|\\\\[^\n])*'/"  # allowed in addition to text in JSON's quotation marks
GEMMA = {
    "gemma_value": 'gemma_text | GEMMA_NUMBER | "true" | "false" | "null" | gemma_list | gemma_map',
    "gemma_text": '"<|\\"|>" GEMMA_TEXT? "<|\\"|>" | GEMMA_QUOTED',
    "GEMMA_QUOTED": '"<|\\"|>" GEMMA_TEXT? "<|\\"|>"',
    "GEMMA_TEXT": f"/(.|\\n)+/ & {excluding(forms.GEMMA_QUOTE)}",
    "GEMMA_NUMBER": r"/-?[0-9]{1,15}(\.[0-9]{1,15})?/",
    "gemma_list": '"[" (gemma_value ("," gemma_value)*)? "]"',
    "gemma_map": '"{" (gemma_pair ("," gemma_pair)*)? "}"',
    "gemma_pair": 'GEMMA_KEY ":" gemma_value',
    "GEMMA_KEY": "/[a-zA-Z0-9_.-]{1,64}/",
}


def tagged_arguments(arguments: TaggedArguments, schema: Mapping[str, Any], rules: Rules, prefix: str) -> str:
    """Add the rules of a function's arguments, named after a prefix, and return the first."""
    schema = rooted(dict(schema))
    writer = TaggedRules(arguments, schema, rules, prefix)
    properties = schema.get("properties")
    is_closed = schema.get("additionalProperties") is False
    return writer.named(properties) if isinstance(properties, dict) and (properties or is_closed) else writer.unnamed()


class TaggedRules:
    """Builds the rules of one function's arguments."""

    def __init__(self, form: TaggedArguments, schema: Mapping[str, Any], rules: Rules, prefix: str) -> None:
        self._form, self._schema, self._rules, self._prefix = form, schema, rules, prefix

    def named(self, properties: Mapping[str, Any]) -> str:
        """Return the rule for arguments in the order of the schema, where optional ones may be missing."""
        given = self._schema.get("required")
        required = given if isinstance(given, list) else []
        none = later = self._rules.add(f"{self._prefix}_end", '""')
        for i, (key, value) in reversed(list(enumerate(properties.items()))):
            pair = self._rules.add(f"{self._prefix}_{i}", self._pair(key, value))
            first, following = (self._rules.sequence(before) for before in (self._form.first, self._form.next))
            skip = "" if key in required else " | "
            now = f"{first} {pair} {later}" + (skip and skip + none)
            then = f"{following} {pair} {later}" + (skip and skip + later)
            none = self._rules.add(f"{self._prefix}_none_{i}", now)
            later = self._rules.add(f"{self._prefix}_some_{i}", then)
        return none

    def unnamed(self) -> str:
        """Return the rule for any arguments, with values of any type."""
        key = self._rules.add("ANY_KEY", KEYS)
        pair = self._rules.add("any_pair", f"{key} ({self._value(KEY, {})})")
        first, following = (self._rules.sequence(before) for before in (self._form.first, self._form.next))
        return f"({first} {pair} ({following} {pair})*)?"

    def _pair(self, key: str, schema: Any) -> str:
        return f"{quoted(key)} ({self._value(key, schema)})"

    def _value(self, key: str, schema: Any) -> str:
        """Return alternatives for the value of a key, one for each style of its types."""
        schema, kinds = schema if isinstance(schema, dict) else {}, types_of(schema, self._schema)
        styles = dict.fromkeys(self._form.styles[kind] for kind in kinds)
        each = [(style, [kind for kind in kinds if self._form.styles[kind] == style]) for style in styles]
        return " | ".join(self._styled(style, key, schema, of) for style, of in each)

    def _styled(self, style: ValueStyle, key: str, schema: Mapping[str, Any], kinds: Sequence[str]) -> str:
        before = self._rules.sequence(filled(style.before, key=key)) if style.before else ""
        after = filled(style.after, key=key)
        if style.notation == forms.TEXT:
            return f"{before} {self._text(after, texts_of(schema, self._schema))}"
        end = self._rules.sequence(after) if after else ""
        alternatives = " | ".join(self._notated(style.notation, schema, kinds))
        return f"{before} ({alternatives}) {end}"

    def _text(self, after: str, texts: Sequence[str]) -> str:
        """Return the rule for plain text up to the literal that ends it."""
        if texts:
            return f"({' | '.join(map(quoted, texts))}) {self._rules.sequence(after)}"
        mark = after.strip()
        space = self._rules.sequence(after[len(after.rstrip()) :])
        name = f"TEXT_{mark.encode().hex().upper()}"
        self._rules.add(name, f"/(.|\\n)+/ & {excluding(mark)}")
        self._rules.add(f"{name}_END", ending_in(mark))
        return f"({name}_END | {name}? {self._rules.sequence(mark)}) {space}"

    def _notated(self, notation: str, schema: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
        """Return alternatives for a value in a notation other than text."""
        if notation == forms.GEMMA:
            for name, body in GEMMA.items():
                self._rules.add(name, body)
            return [{"array": "gemma_list", "object": "gemma_map"}.get(kind, "gemma_value") for kind in kinds]
        found = [f"%json {json.dumps(whole(narrowed(dict(schema), kinds, self._schema), self._schema) | USUAL_JSON)}"]
        if notation == forms.PYTHON:
            texts = texts_of(schema, self._schema)
            is_listed = "enum" in schema or "const" in schema
            found += [quoted(word) for kind in kinds if not is_listed for word in WORDS.get(kind, ())]
            found += map(quoted, map(repr, texts)) if texts else [PYTHON_TEXT] * ("string" in kinds)
        return found
