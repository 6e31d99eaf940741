"""Reads the arguments of a call from a stream, in a model's own notation, and returns them as pieces of JSON.

Knows forms and JSON schemas; knows no protocol.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import DIFFERS, WAIT, CallForm, TaggedArguments, ValueStyle, filled, match
from runtime.conversation.calls.schemas import Function, merged, rooted, types_of
from runtime.conversation.calls.stream import Reading, StreamParser
from runtime.conversation.calls.texts import CDATA, CDATA_END, lead_of
from runtime.conversation.calls.values import ValueScanner, fits, read_value


class JsonReader:
    """Reads arguments that are already a JSON object."""

    def begins(self, text: str) -> int:
        """Return a position if the text begins with an object; WAIT or DIFFERS otherwise."""
        return 0 if text.lstrip()[:1] == "{" else WAIT if not text.strip() else DIFFERS

    def read(self, stream: StreamParser) -> Reading[None]:
        """Read arguments to their end."""
        stream.held = stream.held.lstrip()
        scanner, at = ValueScanner(('"',), bracketed=True), 0
        while (end := scanner.end(stream.held)) is None:
            stream.add_arguments(stream.held[at:])
            at = len(stream.held)
            yield
        stream.add_arguments(stream.take(end)[at:])


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
        return self.style.notation == forms.TEXT and "string" in self.kinds

    @property
    def is_only_text(self) -> bool:
        """Whether it can be nothing but such a text."""
        return self.is_text and len(self.kinds) == 1


class TaggedReader:
    """Reads keys and values between literals."""

    def __init__(self, form: CallForm, function: Function) -> None:
        assert isinstance(form.arguments, TaggedArguments)
        self._arguments, self._schema = form.arguments, rooted(function.schema)
        self._ends = [literal for literal in (form.between, form.closing) if literal is not None]
        self._properties: dict[str, Any] = merged(self._schema)["properties"]

    def read(self, stream: StreamParser) -> Reading[None]:
        """Read arguments to their end."""
        begin, before = "{", self._arguments.first
        while value := (yield from self._key(stream, before)):
            stream.add_arguments(f"{begin}{json.dumps(value.key, ensure_ascii=False)}: ")
            yield from self._value(stream, value)
            begin, before = ", ", self._arguments.next
        stream.add_arguments("{}" if begin == "{" else "}")

    def begins(self, text: str) -> int:
        """Return a position if the text begins with a key or with the end of arguments; WAIT or DIFFERS otherwise."""
        if not text and self._arguments.first + self._ends[-1]:
            return WAIT
        found = [at for _, _, at in self._keys(text, self._arguments.first)]
        found += [match(end, text) for end in self._ends]
        key = match(self._arguments.first, text)
        if 0 <= key < len(text) and (text[key].isalnum() or text[key] in "_$"):
            return key  # a name that the schema lacks
        return max(found)

    def _keys(self, text: str, before: str) -> list[tuple[str, ValueStyle, int]]:
        """Return keys with styles, and for each where its value begins in the text, WAIT or DIFFERS."""
        return [
            (key, style, key_end(text, before, key, filled(style.before, key=key)))
            for key in (*self._properties, forms.KEY)
            for style in {style.before: style for style in self._arguments.styles.values()}.values()
        ]

    def _key(self, stream: StreamParser, before: str) -> Reading[Value | None]:
        """Read a key and return its value, which follows; None if there is no further key."""
        while self._is_incomplete(ends := self._keys(stream.held, before), stream.held):
            yield
        whole = [each for each in ends if each[2] >= 0]
        if not whole:
            return None
        key, style, end = max(whole, key=lambda each: (each[0] != forms.KEY, each[2], len(each[0])))
        if key == forms.KEY:
            key = forms.KEY_NAME.match(stream.held, max(0, match(before, stream.held)))[0]  # type: ignore[index]  # matches anything
        kinds = self._kinds(key, style)
        stream.take(end)
        return Value(key, self._arguments.styles[kinds[0]], kinds)

    def _is_incomplete(self, ends: Sequence[tuple[str, ValueStyle, int]], text: str) -> bool:
        """Whether more text is needed to know the next key, or that there is none."""
        whole = {key for key, _, end in ends if end >= 0}
        keys = {*self._properties, *whole}  # another style may begin with the same literal
        is_waiting = any(end == WAIT and (key in keys or not whole) for key, _, end in ends)
        return is_waiting and not any(match(end, text) >= 0 for end in self._ends)

    def _kinds(self, key: str, style: ValueStyle) -> tuple[str, ...]:
        """Return the types of a value in this style: those that the schema allows, or all if it allows none."""
        alike = [kind for kind, each in self._arguments.styles.items() if each.before == style.before]
        wanted = types_of(self._properties.get(key, {}), self._schema)
        return tuple(kind for kind in alike if kind in wanted) or tuple(alike)

    def _value(self, stream: StreamParser, value: Value) -> Reading[None]:
        """Read a value, and the literal that ends it."""
        while value.is_text and CDATA.startswith(stream.held[: len(CDATA)]):
            mark = CDATA_END + value.after.strip()
            if (end := stream.held.find(mark)) >= 0:
                text = stream.take(end, mark).removeprefix(CDATA)
                return stream.add_arguments(json.dumps(text, ensure_ascii=False))
            yield
        yield from read_text(stream, value.after) if value.is_only_text else self._whole(stream, value)

    def _whole(self, stream: StreamParser, value: Value) -> Reading[None]:
        """Read a value that can be read only as a whole."""
        while not stream.held.strip():
            yield
        mark = value.after.strip()
        scanner = ValueScanner(quotes_of(value, stream.held), mark)
        while (end := scanner.end(stream.held)) is None:
            yield
        text = stream.take(end, mark).removesuffix(lead_of(value.after))
        is_fit = partial(fits, schema=self._properties.get(value.key) if value.is_text else None, root=self._schema)
        stream.add_arguments(read_value(text, value.kinds, value.style.notation, is_fit))


def read_text(stream: StreamParser, after: str) -> Reading[None]:
    """Read a text as it comes, and the literal that ends it."""
    quote, has_ended = '"', False
    while True:
        text, has_ended = stream.take_until(after.strip(), lead_of(after))
        if text or has_ended:
            stream.add_arguments(quote + json.dumps(text, ensure_ascii=False)[1:-1] + '"' * has_ended)
            quote = ""
        if has_ended:
            return
        yield


ArgumentReader = JsonReader | TaggedReader


def reader_for(form: CallForm, function: Function) -> ArgumentReader:
    """Return a reader for the arguments of a call of this function."""
    return TaggedReader(form, function) if isinstance(form.arguments, TaggedArguments) else JsonReader()


def quotes_of(value: Value, text: str) -> tuple[str, ...]:
    """Return the quotation marks between which a value's text does not end; a text without any has none."""
    if value.style.notation == forms.GEMMA:
        return (forms.GEMMA_QUOTE,)
    if not value.after.strip() or value.style.notation == forms.PYTHON:
        return ('"', "'")
    return ('"',) if value.style.notation == forms.JSON or text.lstrip()[0] in "[{" else ()


def key_end(text: str, before: str, key: str, after: str) -> int:
    """Return where a value begins in a text that begins with these literals and its key; WAIT or DIFFERS otherwise.

    Whitespace may vary around a key; within one it may where no other key is meant.
    """
    at = match(before, text)
    if at >= 0 and key != forms.KEY:
        if text.startswith(key, at):
            return match(after, text, at + len(key))
        if key.startswith(text[at:]):
            return WAIT
    return match(before + key + after, text) if key == "".join(key.split()) else min(at, DIFFERS)
