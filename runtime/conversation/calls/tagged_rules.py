"""Builds grammar rules for arguments written one by one, each key and value between literals of its own.

What could not be read back is not offered. Knows forms and JSON schemas.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import CallForm, TaggedArguments, ValueStyle, filled
from runtime.conversation.calls.gemma_rules import GemmaRules
from runtime.conversation.calls.parser import reads_back
from runtime.conversation.calls.rules import USUAL_JSON, Rules, pairs, quoted
from runtime.conversation.calls.schemas import (
    NOT_FOR_ARGUMENTS,
    Function,
    listed,
    merged,
    narrowed,
    rooted,
    texts_of,
    type_of,
    types_of,
    unenforced,
)
from runtime.conversation.calls.texts import NO_JSON, TextExpressions, text_rule
from runtime.core.errors import SettingsError
from runtime.sampling.schema import whole

log = logging.getLogger(__name__)
KEYS = "[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"  # for a schema that names no keys
PLAIN = re.compile(r"[a-zA-Z_][\w-]*( [\w-]+)*", re.ASCII)  # text that every form carries
WORDS = {"True": True, "False": False, "None": None}  # in Python's notation
PYTHON_TEXT = r"/'([^'\\\\\n]|\\\\[^\n])*'/"  # allowed in addition to text in JSON's quotation marks
SAMPLES: dict[str, Any] = {"string": "x", "number": 1, "boolean": True, "null": None, "array": [], "object": {}}


def tagged_arguments(form: CallForm, function: Function, rules: Rules) -> str:
    """Add the rules of a function's arguments, and return the first. Raises SettingsError for required ones that the
    form cannot carry.
    """
    writer = TaggedRules(form, function, rules)
    found = writer.arguments()
    if lost := writer.lost:
        tell(unenforced(function.name, lost))
    return found


@lru_cache(maxsize=256)
def tell(message: str) -> None:
    """Log a warning once."""
    log.warning(message)


class TaggedRules:
    """Builds the rules of one function's arguments."""

    def __init__(self, form: CallForm, function: Function, rules: Rules) -> None:
        assert isinstance(form.arguments, TaggedArguments)
        self._whole, self._form, self._function, self._rules = form, form.arguments, function, rules
        self._schema = merged(rooted(function.schema))
        self._texts = TextExpressions(self._schema)
        self._gemma = GemmaRules(rules, self._texts, self._schema)
        self._left_out = [key for key in NOT_FOR_ARGUMENTS if key in self._schema]

    @property
    def lost(self) -> tuple[str, ...]:
        """What of the schema cannot be enforced, or be written."""
        return (*self._left_out, *self._texts.lost, *self._gemma.lost)

    def arguments(self) -> str:
        """Return the rule for arguments in the order of the schema, where optional ones may be missing."""
        properties, required = self._schema["properties"], self._schema["required"]
        each = [
            (pair, key in required) for key, value in properties.items() if (pair := self._pair(key, value, required))
        ]
        first, following = (self._rules.sequence(before) for before in (self._form.first, self._form.next))
        return pairs(self._rules, each, first, following, self._other_pair(properties))

    def _other_pair(self, properties: Mapping[str, Any]) -> str:
        """Return the rule for a pair whose key the schema does not name; "" if it allows none."""
        more = self._schema.get("additionalProperties", True)
        if more is False:
            return ""
        names = "|".join(map(re.escape, filter(re.compile(KEYS).fullmatch, properties)))
        key = self._rules.named("KEY", f"/{KEYS}/ & ~/{names}/" if names else f"/{KEYS}/")
        return self._rules.named("pair", f"{key} ({self._value(forms.KEY, more)})")

    def _pair(self, key: str, schema: Any, required: Sequence[str]) -> str:
        """Return the rule of a named key and its value; "" if the form cannot carry it."""
        if self._carries(key, SAMPLES[types_of(schema, self._schema)[0]]) and (value := self._value(key, schema)):
            return self._rules.named("pair", f"{quoted(key)} ({value})")
        if key in required:
            raise SettingsError(
                f"Tool '{self._function.name}': its argument {key[:40]!r} cannot be written in the form in which this "
                "model calls tools. Rename it or change its values, or do not require it."
            )
        self._left_out.append(key[:40])
        return ""

    def _carries(self, key: str, value: Any) -> bool:
        """Whether an argument that is written in the form is read back."""
        if PLAIN.fullmatch(key) and (not isinstance(value, str) or PLAIN.fullmatch(value)):
            return True
        return reads_back(self._whole, [self._function], self._function.name, {key: value})

    def _value(self, key: str, schema: Any) -> str:
        """Return alternatives for the value of a key, one for each style of its types."""
        schema, kinds = schema if isinstance(schema, dict) else {}, types_of(schema, self._schema)
        styles = dict.fromkeys(self._form.styles[kind] for kind in kinds)
        each = [(style, [kind for kind in kinds if self._form.styles[kind] == style]) for style in styles]
        return " | ".join(filter(None, (self._styled(style, key, schema, of) for style, of in each)))

    def _styled(self, style: ValueStyle, key: str, schema: Mapping[str, Any], kinds: Sequence[str]) -> str:
        before = self._rules.sequence(filled(style.before, key=key)) if style.before else ""
        after = filled(style.after, key=key)
        if style.notation == forms.TEXT:
            expression = self._texts.of(schema)
            unread = [text for text in texts_of(schema, self._schema) if not self._carries(key, text)]
            self._left_out += [text[:40] for text in unread]
            if unread and len(unread) == len(texts_of(schema, self._schema)):
                return ""
            also = [f"~({' | '.join(map(quoted, unread))})"] if unread else []
            if {"array", "object"} & set(types_of(schema, self._schema)):
                also.append(NO_JSON)
            return f"{before} {text_rule(self._rules, after, expression, also)}"
        end = self._rules.sequence(after) if after else ""
        alternatives = " | ".join(self._notated(style.notation, schema, kinds))
        return f"{before} ({alternatives}) {end}" if alternatives else ""

    def _notated(self, notation: str, schema: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
        """Return alternatives for a value in a notation other than text."""
        if notation == forms.GEMMA:
            return [self._gemma.value(schema)]
        found = [f"%json {json.dumps(whole(narrowed(dict(schema), kinds, self._schema), self._schema) | USUAL_JSON)}"]
        if notation == forms.PYTHON:
            texts = texts_of(schema, self._schema)
            found += [
                quoted(word) for word, value in WORDS.items() if type_of(value) in kinds and is_listed(value, schema)
            ]
            if "string" in kinds and (texts or not self._texts.of(schema)):
                found += map(quoted, map(repr, texts)) if texts else [PYTHON_TEXT]
        return found


def is_listed(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a schema lists a value, or lists none."""
    values = listed(schema)
    return values is None or any(each is value for each in values)
