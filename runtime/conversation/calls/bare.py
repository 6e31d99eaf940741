"""Finds calls that a model writes without the marks of its form.

The reply must be JSON alone, fenced or not, or begin with lines of JSON, or end with JSON after the tag `<tools>`, and
name offered functions with arguments that fit. Any other reply is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from runtime.conversation.calls.function import Function
from runtime.conversation.calls.json_values import TOOLS, before_tags, begins, leading_values, refuse, values_in

FENCE = "```"
OPENERS = (FENCE, TOOLS, "<tool_call>", "[")
LANGUAGES = ("", "json", "tool_call", "tool_code", "xml")
FIRST_KEYS = ("name", "function", "type", "id", "tool_name", "arguments", "parameters")
OBJECT = re.compile(r'\{{1,2}\s*(?:"([a-z_]*)(".*)?)?', re.DOTALL)
NAMED = re.compile(r'"(?:name|tool_name)"\s*:\s*"([^"]*)"')
DECIDED = 1024  # characters, within which the name of a call must occur
MAX_BUFFER = 2**17  # characters that are buffered, at most


class BareCall(tuple[str, str]):
    """A function's name, and its arguments as JSON."""

    __slots__ = ()


class BareCalls:
    """Buffers what may be calls: the beginning of a reply, and what follows the tag `<tools>`."""

    def __init__(self, functions: Sequence[Function], parallel: bool, trigger: str = "") -> None:
        """Create the reader; calls that start with `trigger` are left to their own parser."""
        self._functions = {function.name: function for function in functions}
        self._trigger, self._tags = trigger, (TOOLS, trigger) if trigger else ()
        self._is_named = self._has_text = self._is_announced = False
        self._parallel, self._held = parallel, ""

    def feed(self, text: str) -> str:
        """Return the text that is certainly not such a call."""
        self._held, certain = self._held + text, ""
        while self._held and not self._may_be_calls():
            certain += self._released(len(self._held) if self._is_announced else before_tags(self._held, self._tags))
        return certain

    def _may_be_calls(self) -> bool:
        """Whether the buffered text may be the beginning of calls alone, or a part of a tag."""
        self._is_announced |= bool(self._trigger) and self._held.lstrip().startswith(self._trigger)
        if self._is_announced or (self._has_text and not begins(self._held, self._tags)):
            return False
        name = NAMED.search(self._held)
        self._is_named = name is not None and name[1] in self._functions
        if len(self._held) > DECIDED:
            return self._is_named and len(self._held) < MAX_BUFFER
        is_tag = self._has_text and self._trigger.startswith(self._held)
        return is_tag or (may_be_calls(self._held) and (name is None or self._is_named))

    def finish(self, is_cut: bool) -> tuple[list[BareCall], str]:
        """Return the calls if the buffered text consists of them alone, else the text."""
        calls = [] if is_cut else self._calls()
        return (calls, "") if calls else ([], self._released(len(self._held)))

    def _released(self, n: int) -> str:
        text, self._held, self._has_text = self._held[:n], self._held[n:], True
        return text

    def _calls(self) -> list[BareCall]:
        """Return the calls of the text, or none if it is anything else."""
        found = [self._call(value) for value in values_in(self._held)]
        calls = [call for call in found if call]
        return calls if len(calls) == len(found) and (self._parallel or len(calls) == 1) else []

    def _call(self, value: Any) -> BareCall | None:
        """Return the call that a value represents, or None if it is no valid call of an offered function."""
        if isinstance(value, dict) and isinstance(value.get("function"), dict):
            value = value["function"]
        if not isinstance(value, dict):
            return None
        function = self._functions.get(str(value.get("name") or value.get("tool_name")))
        arguments = next((value[key] for key in ("arguments", "parameters") if key in value), None)
        if isinstance(arguments, str):
            values, rest = leading_values(arguments)
            arguments = values[0] if values and not rest else None
        if function is None or not isinstance(arguments, dict):
            return None
        if not fits(arguments, function):
            arguments = without_nulls(arguments)
            if not fits(arguments, function):
                return None
        try:
            return BareCall((function.name, json.dumps(arguments, ensure_ascii=False, allow_nan=False)))
        except ValueError:  # an infinite float, from a number too large for one
            return None


def may_be_calls(text: str) -> bool:
    """Whether the text may be the beginning of calls alone."""
    rest = text.lstrip()
    while opener := next((opener for opener in OPENERS if rest.startswith(opener)), ""):
        rest = rest.removeprefix(opener)
        if opener == FENCE:
            language, has_ended, rest = rest.partition("\n")
            if not (has_ended and language.strip() in LANGUAGES):
                return not has_ended and any(known.startswith(language.strip()) for known in LANGUAGES)
        rest = rest.lstrip()
    if any(opener.startswith(rest) for opener in OPENERS):  # true of an empty rest too
        return True
    found = OBJECT.fullmatch(rest)
    key, is_whole = (found[1] or "", found[2]) if found else ("?", "")
    return key in FIRST_KEYS if is_whole else any(first.startswith(key) for first in FIRST_KEYS)


def fits(arguments: dict[str, Any], function: Function) -> bool:
    """Whether the arguments follow the function's schema. A schema that cannot be read allows any."""
    try:
        return jsonschema_rs.validator_for(dict(function.parameters or {}), retriever=refuse).is_valid(arguments)
    except (ValueError, jsonschema_rs.ReferencingError):
        return True


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not null: models write null for what they leave out."""
    return {key: value for key, value in arguments.items() if value is not None}
