"""Finds calls that a model writes without the marks of its form.

The reply must be JSON alone, fenced or not, that names offered functions with arguments that fit. Any other reply is
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import jsonschema_rs

from runtime.conversation.calls.grammar import Function

FENCE = "```"
OPENERS = (FENCE, "<tools>", "<tool_call>", "[")
LANGUAGES = ("", "json", "tool_call", "tool_code", "xml")
FIRST_KEYS = ("name", "function", "type", "id", "tool_name", "arguments", "parameters")
OBJECT = re.compile(r'\{{1,2}\s*(?:"([a-z_]*)(".*)?)?', re.DOTALL)
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
TAG = re.compile(r"</?(?:tools|tool_call)>")
NAMED = re.compile(r'"(?:name|tool_name)"\s*:\s*"([^"]*)"')
DECIDED = 1024  # characters, within which the name of a call must occur
MAX_BUFFER = 2**17  # characters that are buffered, at most


class BareCall(tuple[str, str]):
    """A function's name, and its arguments as JSON."""

    __slots__ = ()


class BareCalls:
    """Buffers the beginning of a reply while it may consist of calls alone."""

    def __init__(self, functions: Sequence[Function], parallel: bool, trigger: str = "") -> None:
        """Create the reader; calls that start with `trigger` are left to their own parser."""
        self._functions = {function.name: function for function in functions}
        self._trigger, self._is_named = trigger, False
        self._parallel, self._held, self._is_text = parallel, "", False

    def feed(self, text: str) -> str:
        """Return the text that is certainly not such a call."""
        if self._is_text:
            return text
        self._held += text
        return "" if self._may_be_calls() else self._released()

    def _may_be_calls(self) -> bool:
        """Whether the text so far may be the beginning of calls alone."""
        if len(self._held) > DECIDED:
            return self._is_named and len(self._held) < MAX_BUFFER
        name = NAMED.search(self._held)
        self._is_named = name is not None and name[1] in self._functions
        is_announced = bool(self._trigger) and self._held.lstrip().startswith(self._trigger)
        return may_be_calls(self._held) and (name is None or self._is_named) and not is_announced

    def finish(self, is_cut: bool) -> tuple[list[BareCall], str]:
        """Return the calls if the reply consists of them alone, else the buffered text."""
        calls = [] if is_cut or self._is_text else self._calls()
        return (calls, "") if calls else ([], self._released())

    def _released(self) -> str:
        text, self._held, self._is_text = self._held, "", True
        return text

    def _calls(self) -> list[BareCall]:
        """Return the calls of the text, or none if it contains anything else."""
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
            arguments = next(iter(values_in(arguments)), None)
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


def values_in(text: str) -> list[Any]:
    """Return the JSON values of a text, without fences and tags around them; none if there is any other text."""
    blocks = FENCED.findall(text)
    if blocks and FENCED.sub("", text).strip():
        return []
    rest = TAG.sub(" ", "\n".join(blocks) if blocks else text).strip()
    try:
        return list(decoded(rest))
    except (ValueError, RecursionError):
        return []


def decoded(text: str) -> Iterator[Any]:
    """Yield consecutive JSON values; of a list, its elements. Raises ValueError.

    An object may have its outer braces twice, as the template of Qwen2.5-Coder shows calls.
    """
    while text:
        is_doubled = text.startswith("{{")
        value, end = json.JSONDecoder(parse_constant=refuse).raw_decode(text.removeprefix("{") if is_doubled else text)
        yield from value if isinstance(value, list) else [value]
        rest = text[end + is_doubled :]
        text = (rest.lstrip().removeprefix("}") if is_doubled else rest).lstrip(" \t\r\n,;")


def fits(arguments: dict[str, Any], function: Function) -> bool:
    """Whether the arguments follow the function's schema. A schema that cannot be read allows any."""
    try:
        return jsonschema_rs.validator_for(dict(function.parameters or {}), retriever=refuse).is_valid(arguments)
    except (ValueError, jsonschema_rs.ReferencingError):
        return True


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not null: models write null for what they leave out."""
    return {key: value for key, value in arguments.items() if value is not None}


def refuse(uri: str) -> NoReturn:
    """Refuse to fetch a schema's external references. Raises ValueError."""
    raise ValueError(uri)
