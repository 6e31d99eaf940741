"""Reads the arguments of a call from a stream, in a model's own notation, and returns them as pieces of JSON.

Knows forms and JSON schemas; knows no protocol.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from runtime.conversation.calls.form import KEY, TEXT, CallForm, TaggedArguments, ValueStyle, filled
from runtime.conversation.calls.grammar import Function
from runtime.conversation.calls.json_end import BracketScanner, ValueScanner
from runtime.conversation.calls.matching import KEY_NAME, WAIT, before_overlap, match
from runtime.conversation.calls.schemas import rooted, types_of
from runtime.conversation.calls.values import read_value

CDATA, CDATA_END = "<![CDATA[", "]]>"  # around text that contains marks, where arguments are XML


class Read(NamedTuple):
    """The JSON that is now certain, and the text after the arguments (None until they end)."""

    json: str
    rest: str | None = None


class ArgumentReader(Protocol):
    """Reads the arguments of one call."""

    def feed(self, text: str) -> Read:
        """Read more text."""


class JsonReader:
    """Reads arguments that are already a JSON object."""

    def __init__(self) -> None:
        self._scanner = BracketScanner()

    def feed(self, text: str) -> Read:
        """Read more text."""
        end = self._scanner.end(text)
        return Read(text, None) if end is None else Read(text[:end], text[end:])


class Value(NamedTuple):
    """A value that has started: its key, its style and its possible types."""

    key: str
    style: ValueStyle
    kinds: tuple[str, ...]


class TaggedReader:
    """Reads keys and values between literals."""

    def __init__(self, form: CallForm, function: Function) -> None:
        assert isinstance(form.arguments, TaggedArguments)
        self._arguments, self._schema = form.arguments, rooted(function.schema)
        self._ends = [literal for literal in (form.between, form.closing) if literal is not None]
        self._properties: dict[str, Any] = self._schema.get("properties") or {}
        self._held, self._n, self._is_streaming = "", 0, False
        self._value: Value | None = None
        self._scanner = ValueScanner(TEXT)

    def feed(self, text: str) -> Read:
        """Read more text."""
        self._held += text
        found = ""
        while True:
            if self._value is None:
                step = self._key()
            else:
                step = self._text_value(self._value) if self._is_text(self._value) else self._whole_value(self._value)
            if step is None:
                return Read(found)
            if not step:
                return Read(found + ("}" if self._n else "{}"), self._held)
            found += step

    def _key(self) -> str | None:
        """Return the JSON up to and including the next key; None if it is incomplete, "" if there is no further key."""
        before = self._arguments.next if self._n else self._arguments.first
        ends = [(key, style, self._begins(before, key, style)) for key in self._keys() for style in self._styles()]
        whole = [each for each in ends if each[2] >= 0]
        is_waiting = any(end == WAIT and (key in self._properties or not whole) for key, _, end in ends)
        if is_waiting and not any(match(end, self._held) >= 0 for end in self._ends):
            return None
        if not whole:
            return ""
        key, style, end = max(whole, key=lambda each: (each[2], len(each[0])))
        if key == KEY:
            start = max(0, match(before, self._held))
            key = KEY_NAME.match(self._held, start)[0]  # type: ignore[index]  # matches anything
        kinds = self._kinds(key, style)
        style = self._arguments.styles[kinds[0]]
        self._held, self._value, self._scanner = (
            self._held[end:],
            Value(key, style, kinds),
            ValueScanner(style.notation),
        )
        self._n += 1
        return f"{', ' if self._n > 1 else '{'}{json.dumps(key, ensure_ascii=False)}: "

    def _begins(self, before: str, key: str, style: ValueStyle) -> int:
        return match(before + key + filled(style.before, key=key), self._held)

    def _keys(self) -> Sequence[str]:
        return [*self._properties, KEY]

    def _styles(self) -> Sequence[ValueStyle]:
        return list({style.before: style for style in self._arguments.styles.values()}.values())

    def _kinds(self, key: str, style: ValueStyle) -> tuple[str, ...]:
        """Return the types of a value in this style: those that the schema allows, or all if it allows none."""
        alike = [kind for kind, each in self._arguments.styles.items() if each.before == style.before]
        wanted = types_of(self._properties.get(key, {}), self._schema)
        return tuple(kind for kind in alike if kind in wanted) or tuple(alike)

    def _is_text(self, value: Value) -> bool:
        return value.kinds == ("string",) and value.style.notation == TEXT

    def _text_value(self, value: Value) -> str | None:
        """Return the part of a text value that is certain, as JSON, or None if there is none yet."""
        after = filled(value.style.after, key=value.key)
        text, ends, rest = self._held.partition(after.strip())
        if not self._is_streaming and CDATA.startswith(text[: len(CDATA)]):
            return self._whole_value(value)
        if ends:
            text = text.removesuffix(lead_of(after))
            self._held, self._value = rest, None
        else:
            at = min(before_overlap(text, after), before_overlap(text, after.strip()))
            text, self._held = text[:at], text[at:]
            if not text:
                return None
        begin = "" if self._is_streaming else '"'
        self._is_streaming = not ends
        return begin + json.dumps(text, ensure_ascii=False)[1:-1] + ('"' if ends else "")

    def _whole_value(self, value: Value) -> str | None:
        """Return a value that is read only as a whole, as JSON, or None if it is incomplete."""
        after = filled(value.style.after, key=value.key)
        is_cdata = self._held.startswith(CDATA)
        mark = CDATA_END * is_cdata + after.strip()
        end = self._held.find(mark) if mark else self._scanner.end(self._held)
        if end is None or end < 0:
            return None
        text, self._held, self._value = self._held[:end], self._held[end + len(mark) :], None
        if is_cdata:
            return json.dumps(text.removeprefix(CDATA), ensure_ascii=False)
        return read_value(text.removesuffix(lead_of(after)), value.kinds, value.style.notation)


def lead_of(after: str) -> str:
    """Return the whitespace that a literal begins with."""
    return after[: len(after) - len(after.lstrip())]


def reader_for(form: CallForm, function: Function) -> ArgumentReader:
    """Return a reader for the arguments of a call of this function."""
    return TaggedReader(form, function) if isinstance(form.arguments, TaggedArguments) else JsonReader()
