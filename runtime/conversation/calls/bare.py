"""Finds calls that a model writes without the marks of its form.

The reply must be JSON alone, fenced or not, or begin with lines of JSON, or end with JSON after the tag `<tools>`, and
name offered functions with arguments that fit. Any other reply is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from runtime.conversation.calls.schemas import Function
from runtime.conversation.calls.stream import before_overlap
from runtime.conversation.calls.values import fits, refuse

FENCE, TOOLS = "```", "<tools>"
OPENERS = (FENCE, TOOLS, "<tool_call>", "[")
LANGUAGES = ("", "json", "tool_call", "tool_code", "xml")
FIRST_KEYS = ("name", "function", "type", "id", "tool_name", "arguments", "parameters")
OBJECT = re.compile(r'\{{1,2}\s*(?:"([a-z_]*)(".*)?)?', re.DOTALL)
NAMED = re.compile(r'"(?:name|tool_name)"\s*:\s*"([^"]*)"')
FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
TAG = re.compile(r"</?(?:tools|tool_call)>")
CLOSERS = re.compile(r"^(?:\s*\})+")
AFTER = re.compile(r"\s*\n\s*\w")  # text on a line of its own
DECIDED = 1024  # characters, within which the name of a call must occur
MAX_BUFFER = 2**17  # characters that are buffered, at most
Call = tuple[str, str]  # a function's name, and its arguments as JSON


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

    def finish(self, is_cut: bool) -> tuple[list[Call], str]:
        """Return the calls if the buffered text consists of them alone, else the text."""
        calls = [] if is_cut else self._calls()
        return (calls, "") if calls else ([], self._released(len(self._held)))

    def _released(self, n: int) -> str:
        text, self._held, self._has_text = self._held[:n], self._held[n:], True
        return text

    def _calls(self) -> list[Call]:
        """Return the calls of the text, or none if it is anything else."""
        found = [self._call(value) for value in values_in(self._held)]
        calls = [call for call in found if call]
        return calls if len(calls) == len(found) and (self._parallel or len(calls) == 1) else []

    def _call(self, value: Any) -> Call | None:
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
        if not fits(arguments, function.parameters, {}):
            arguments = without_nulls(arguments)
            if not fits(arguments, function.parameters, {}):
                return None
        try:
            return function.name, json.dumps(arguments, ensure_ascii=False, allow_nan=False)
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


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not null: models write null for what they leave out."""
    return {key: value for key, value in arguments.items() if value is not None}


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
