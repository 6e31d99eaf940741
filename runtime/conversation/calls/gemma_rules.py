"""Builds grammar rules for values in Gemma 4's notation: JSON with bare keys and its own quotation marks.

Knows JSON schemas and that notation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from runtime.conversation.calls.form import GEMMA_QUOTE
from runtime.conversation.calls.rules import USUAL_JSON, Rules, pairs, quoted, without
from runtime.conversation.calls.schemas import listed, merged, narrowed, parts_of, type_of, types_of
from runtime.conversation.calls.texts import ANY_TEXT, TextExpressions
from runtime.conversation.calls.values import ValueScanner, from_gemma, gemma
from runtime.sampling.schema import resolved, whole

QUOTE = quoted(GEMMA_QUOTE)
ANY_VALUE = {
    "gemma_value": 'gemma_text | GEMMA_NUMBER | "true" | "false" | "null" | gemma_list | gemma_map',
    "gemma_text": f"{QUOTE} GEMMA_TEXT {QUOTE} | GEMMA_QUOTED",
    "GEMMA_QUOTED": f"{QUOTE} GEMMA_TEXT {QUOTE}",
    "GEMMA_TEXT": f"{ANY_TEXT} & {without(GEMMA_QUOTE)}",
    "GEMMA_NUMBER": r"/-?[0-9]{1,15}(\.[0-9]{1,15})?/",
    "gemma_list": '"[" (gemma_value ("," gemma_value)*)? "]"',
    "gemma_map": '"{" (gemma_pair ("," gemma_pair)*)? "}"',
    "gemma_pair": 'GEMMA_KEY ":" gemma_value',
    "GEMMA_KEY": "/[a-zA-Z0-9_.-]{1,64}/",
}
LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
NOT_ENFORCED = ("allOf", "patternProperties", "minProperties", "maxProperties", "contains")


class GemmaRules:
    """The rules of values of one function's arguments."""

    def __init__(self, rules: Rules, texts: TextExpressions, root: Mapping[str, Any]) -> None:
        self._rules, self._texts, self._root = rules, texts, root
        self._by_ref: dict[str, str] = {}
        self.lost: dict[str, None] = {}  # what of the schemas cannot be enforced, or be written

    def value(self, schema: Any) -> str:
        """Return the alternatives for a value; "" if none can be written."""
        if not isinstance(schema, dict) or not schema:
            return self._any("gemma_value")
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"])
        if (values := listed(schema)) is not None:
            return self._listed(values, schema)
        if parts := parts_of(schema, "anyOf", "oneOf"):
            return " | ".join(filter(None, map(self.value, parts)))
        kinds = types_of(schema, self._root)
        return " | ".join(filter(None, (self._of(kind, schema) for kind in kinds)))

    def _any(self, name: str) -> str:
        for each, body in ANY_VALUE.items():
            self._rules.add(each, body)
        return name

    def _referred(self, ref: str) -> str:
        """Return the name of the rule of a definition, which may refer to itself."""
        if ref not in self._by_ref:
            self._by_ref[ref] = self._rules.reserved("gemma_ref")
            self._rules.add(self._by_ref[ref], self.value(resolved(ref, self._root)) or '""')
        return self._by_ref[ref]

    def _listed(self, values: list[Any], schema: Mapping[str, Any]) -> str:
        kinds = types_of(schema, self._root)
        allowed = [value for value in values if type_of(value) in kinds]
        written = [value for value in allowed if is_read_back(value)]
        self.lost |= dict.fromkeys(str(value)[:40] for value in allowed if value not in written)
        return " | ".join(quoted(gemma(value)) for value in written)

    def _of(self, kind: str, schema: Mapping[str, Any]) -> str:
        """Return the alternatives for values of one type."""
        self.lost |= dict.fromkeys(key for key in NOT_ENFORCED if key in schema and kind in ("array", "object"))
        if kind == "string":
            return self._text(self._texts.of(schema))
        if kind == "array":
            return self._list(schema)
        if kind == "object":
            return self._map(schema)
        if kind == "number" and not any(key in schema for key in LIMITS) and schema.get("type") == "number":
            return self._any("GEMMA_NUMBER")
        return f"%json {json.dumps(whole(narrowed(dict(schema), [kind], self._root), self._root) | USUAL_JSON)}"

    def _text(self, expression: str) -> str:
        if not expression:
            return self._any("gemma_text")
        text = self._rules.named("TEXT", f"{expression} & {without(GEMMA_QUOTE)}")
        return f"{QUOTE} {text} {QUOTE} | {self._rules.named('TEXT', f'{QUOTE} {text} {QUOTE}')}"

    def _list(self, schema: Mapping[str, Any]) -> str:
        item = self.value(schema.get("items", {}))
        if "prefixItems" in schema or not item:
            self.lost["prefixItems" if "prefixItems" in schema else "items"] = None
            return self._any("gemma_list")
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[]"'
        name = self._rules.named("gemma_item", item)
        more = f'("," {name}){{{max(0, least - 1)},{"" if most is None else most - 1}}}' if most != 1 else ""
        return f'"[" {name} {more} "]"' if least else f'"[" ({name} {more})? "]"'

    def _map(self, schema: Mapping[str, Any]) -> str:
        if not isinstance(schema.get("properties"), dict) and schema.get("additionalProperties", True) is True:
            return self._any("gemma_map")
        found = merged(dict(schema))
        each = [
            (f"{quoted(f'{key}:')} ({value})", key in found["required"])
            for key, inner in found["properties"].items()
            if (value := self._carried(key, inner))
        ]
        other = found.get("additionalProperties", True)
        self._any("GEMMA_KEY")
        pair = "" if other is False else self._rules.named("gemma_pair", f'GEMMA_KEY ":" ({self.value(other)})')
        return f'"{{" {pairs(self._rules, each, "", quoted(","), pair)} "}}"'

    def _carried(self, key: str, schema: Any) -> str:
        """Return the alternatives for the value of a key; "" if the key or its values cannot be read back."""
        found = self.value(schema) if is_read_back({key: 1}) else ""
        if not found:
            self.lost[key[:40]] = None
        return found


def is_read_back(value: Any) -> bool:
    """Whether a value that is written in the notation is read as the same, up to where it ends."""
    text = gemma(value)
    try:
        return ValueScanner((GEMMA_QUOTE,)).end(text + "}") == len(text) and bool(from_gemma(text) == value)
    except ValueError:
        return False
