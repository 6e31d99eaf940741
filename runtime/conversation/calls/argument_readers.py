"""Reads the arguments of a call from a stream, in a model's own notation, and returns them as pieces of JSON.

Knows forms and JSON schemas; knows no protocol.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from runtime.conversation.calls.form import (
    DIFFERS,
    GEMMA,
    GEMMA_QUOTE,
    JSON,
    KEY,
    KEY_NAME,
    PYTHON,
    TEXT,
    WAIT,
    CallForm,
    TaggedArguments,
    ValueStyle,
    before_overlap,
    filled,
    match,
)
from runtime.conversation.calls.schemas import Function, merged, rooted, types_of
from runtime.conversation.calls.texts import CDATA, CDATA_END, lead_of
from runtime.conversation.calls.values import ValueScanner, fits, read_value


class Read(NamedTuple):
    """The JSON that is now certain, and the text after the arguments (None until they end)."""

    json: str
    rest: str | None = None


class JsonReader:
    """Reads arguments that are already a JSON object."""

    def __init__(self) -> None:
        self._scanner, self._text = ValueScanner(('"',), bracketed=True), ""

    def feed(self, text: str) -> Read:
        """Read more text."""
        begin, self._text = len(self._text), self._text + text
        end = self._scanner.end(self._text)
        return Read(self._text[begin:end], None if end is None else self._text[end:])


class Value(NamedTuple):
    """A value that has started: its key, its style and its possible types."""

    key: str
    style: ValueStyle
    kinds: tuple[str, ...]

    @property
    def after(self) -> str:
        """The literal that ends it."""
        return filled(self.style.after, key=self.key)

    @property
    def is_text(self) -> bool:
        """Whether it may be any text without quotation marks."""
        return self.style.notation == TEXT and "string" in self.kinds


class TaggedReader:
    """Reads keys and values between literals."""

    def __init__(self, form: CallForm, function: Function) -> None:
        assert isinstance(form.arguments, TaggedArguments)
        self._arguments, self._schema = form.arguments, rooted(function.schema)
        self._ends = [literal for literal in (form.between, form.closing) if literal is not None]
        self._properties: dict[str, Any] = merged(self._schema)["properties"]
        self._held, self._n, self._is_streaming = "", 0, False
        self._value: Value | None = None
        self._scanner: ValueScanner | None = None  # of the value, once its first characters tell how it is written

    def feed(self, text: str) -> Read:
        """Read more text."""
        self._held += text
        found = ""
        while True:
            step = self._key() if self._value is None else self._part_of(self._value)
            if step is None:
                return Read(found)
            if not step:
                return Read(found + ("}" if self._n else "{}"), self._held)
            found += step

    def begins(self, text: str) -> int:
        """Return a position if the text begins with a key or with the end of arguments; WAIT or DIFFERS otherwise."""
        if not text and self._arguments.first + self._ends[-1]:
            return WAIT
        found = [at for _, _, at in self._keys(text)] + [match(end, text) for end in self._ends]
        key = match(self._arguments.first, text)
        if key >= 0 and key < len(text) and (text[key].isalnum() or text[key] in "_$"):
            return key  # a name that the schema lacks
        return max(found)

    def _keys(self, text: str) -> list[tuple[str, ValueStyle, int]]:
        """Return keys with styles, and for each where its value begins in the text, WAIT or DIFFERS."""
        before = self._arguments.next if self._n else self._arguments.first
        return [
            (key, style, key_end(text, before, key, filled(style.before, key=key)))
            for key in (*self._properties, KEY)
            for style in {style.before: style for style in self._arguments.styles.values()}.values()
        ]

    def _key(self) -> str | None:
        """Return the JSON up to and including the next key; None if it is incomplete, "" if there is no further key."""
        ends = self._keys(self._held)
        whole = [each for each in ends if each[2] >= 0]
        keys = {*self._properties, *(key for key, _, _ in whole)}  # another style may begin with the same literal
        is_waiting = any(end == WAIT and (key in keys or not whole) for key, _, end in ends)
        if is_waiting and not any(match(end, self._held) >= 0 for end in self._ends):
            return None
        if not whole:
            return ""
        key, style, end = max(whole, key=lambda each: (each[0] != KEY, each[2], len(each[0])))
        if key == KEY:
            start = max(0, match(self._arguments.next if self._n else self._arguments.first, self._held))
            key = KEY_NAME.match(self._held, start)[0]  # type: ignore[index]  # matches anything
        kinds = self._kinds(key, style)
        self._held, self._value, self._scanner = (
            self._held[end:],
            Value(key, self._arguments.styles[kinds[0]], kinds),
            None,
        )
        self._n += 1
        return f"{', ' if self._n > 1 else '{'}{json.dumps(key, ensure_ascii=False)}: "

    def _kinds(self, key: str, style: ValueStyle) -> tuple[str, ...]:
        """Return the types of a value in this style: those that the schema allows, or all if it allows none."""
        alike = [kind for kind, each in self._arguments.styles.items() if each.before == style.before]
        wanted = types_of(self._properties.get(key, {}), self._schema)
        return tuple(kind for kind in alike if kind in wanted) or tuple(alike)

    def _part_of(self, value: Value) -> str | None:
        """Return the part of a value that is certain, as JSON, or None if there is none yet."""
        if value.is_text and not self._is_streaming and CDATA.startswith(self._held[: len(CDATA)]):
            return self._data(value)
        return self._text(value) if value.is_text and len(value.kinds) == 1 else self._whole(value)

    def _text(self, value: Value) -> str | None:
        after = value.after
        text, ends, rest = self._held.partition(after.strip())
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

    def _data(self, value: Value) -> str | None:
        """Return a text between the marks of CDATA, or None if it is incomplete."""
        mark = CDATA_END + value.after.strip()
        end = self._held.find(mark)
        return None if end < 0 else json.dumps(self._taken(end, mark).removeprefix(CDATA), ensure_ascii=False)

    def _whole(self, value: Value) -> str | None:
        """Return a value that is read only as a whole, as JSON, or None if it is incomplete."""
        mark = value.after.strip()
        if self._scanner is None:
            if not self._held.strip():
                return None
            self._scanner = ValueScanner(quotes_of(value, self._held), mark)
        end = self._scanner.end(self._held)
        if end is None:
            return None
        text = self._taken(end, mark).removesuffix(lead_of(value.after))
        schema = self._properties.get(value.key) if value.is_text else None
        return read_value(text, value.kinds, value.style.notation, lambda found: fits(found, schema, self._schema))

    def _taken(self, end: int, mark: str) -> str:
        """Return the text before a position, and go on behind the mark that is there."""
        text, self._held, self._value = self._held[:end], self._held[end + len(mark) :], None
        return text


def quotes_of(value: Value, text: str) -> tuple[str, ...]:
    """Return the quotation marks between which a value's text does not end; a text without any has none."""
    if value.style.notation == GEMMA:
        return (GEMMA_QUOTE,)
    if not value.after.strip() or value.style.notation == PYTHON:
        return ('"', "'")
    return ('"',) if value.style.notation == JSON or text.lstrip()[0] in "[{" else ()


def key_end(text: str, before: str, key: str, after: str) -> int:
    """Return where a value begins in a text that begins with these literals and its key; WAIT or DIFFERS otherwise.

    Whitespace may vary around a key; within one it may where no other key is meant.
    """
    at = match(before, text)
    if at >= 0 and key != KEY:
        if text.startswith(key, at):
            return match(after, text, at + len(key))
        if key.startswith(text[at:]):
            return WAIT
    return match(before + key + after, text) if key == "".join(key.split()) else min(at, DIFFERS)


ArgumentReader = JsonReader | TaggedReader


def reader_for(form: CallForm, function: Function) -> ArgumentReader:
    """Return a reader for the arguments of a call of this function."""
    return TaggedReader(form, function) if isinstance(form.arguments, TaggedArguments) else JsonReader()
