"""Parses a streamed reply into text, function names and pieces of arguments.

Knows forms; knows no protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.conversation.calls.argument_readers import ArgumentReader, reader_for
from runtime.conversation.calls.form import DIFFERS, WAIT, CallForm, filled, match
from runtime.conversation.calls.past import written_calls
from runtime.conversation.calls.schemas import Function
from runtime.conversation.calls.stream import Reading, ReplyPart, StreamParser, before_overlap


class CallParser(StreamParser):
    """Parses a reply with calls in a form."""

    def __init__(self, form: CallForm, functions: Sequence[Function]) -> None:
        super().__init__()
        self._form, self._functions = form, functions
        self._reader: ArgumentReader | None = None  # of the call that is being read
        self._has_calls = self._has_text = self._is_text = False  # any so far; text since the last call
        self._spaces = ""  # whitespace before text, dropped if a call follows

    def _read(self) -> Reading[None]:
        yield from self._skip_beginning()
        while True:
            yield from self._read_text()
            while self._reader:
                yield from self._reader.read(self)
                yield from self._after_call()

    def _read_end(self, is_cut: bool) -> None:
        if not (is_cut or self._reader):
            self._say(len(self.held))
        if self._spaces and not self._has_calls:
            self.add("content", self._spaces)

    def _skip_beginning(self) -> Reading[None]:
        """Drop the text that precedes an answer."""
        answer = self._form.answer
        while answer.startswith(self.held) and self.held != answer and not self.has_ended:
            yield
        if answer and self.held.startswith(answer):
            self.take(len(answer))
            self._has_text = True

    def _read_text(self) -> Reading[None]:
        """Read text up to the arguments of a call."""
        while True:
            trigger, opening = self._announcement()
            self._say(self._n_before(trigger))
            found = self._begin_call(opening) if self.held else WAIT
            if found >= 0:
                return
            if found == WAIT:
                yield
            else:
                self._say(max(1, len(trigger)))

    def _announcement(self) -> tuple[str, str]:
        """Return the text that now marks a call, and all text before its function's name.

        After text, calls without a trigger look like those after other calls.
        """
        if self._form.trigger or not self._has_text:
            return self._form.trigger, self._form.opening.lstrip()
        between = (self._form.between or "").strip()
        return between, between

    def _n_before(self, trigger: str) -> int:
        """Return the length of the text before what may be a call that this marks."""
        held = self.held
        if not self._functions or (self._has_text and not trigger):
            return len(held)
        at = held.find(trigger)
        return at if at >= 0 else before_overlap(held, trigger)

    def _begin_call(self, before: str) -> int:
        """Start the call whose name follows this literal; return where its arguments begin, WAIT or DIFFERS."""
        each = [(function, self._arguments_at(before, function)) for function in self._functions]
        function, at = max(each, key=lambda found: (found[1], len(found[0].name)))
        if at < 0 or any(other == WAIT and found.name.startswith(function.name) for found, other in each):
            return WAIT if any(found == WAIT for _, found in each) else DIFFERS
        self.take(at)
        self.add("call", function.name)
        self._has_calls, self._is_text, self._spaces = True, False, ""
        self._reader = reader_for(self._form, function)
        return at

    def _arguments_at(self, before: str, function: Function) -> int:
        """Return where the arguments of a function begin if the buffered text calls it; WAIT or DIFFERS otherwise."""
        at = match(before + function.name + filled(self._form.head, name=function.name), self.held)
        begins = reader_for(self._form, function).begins(self.held[at:]) if at >= 0 else at
        return at if begins >= 0 else begins

    def _after_call(self) -> Reading[None]:
        """Start another call, or drop what ends the calls."""
        between = self._form.between
        while True:
            closing = match(self._form.closing, self.held)
            found = DIFFERS if between is None else self._begin_call(between)
            if found >= 0:
                return
            if self.has_ended or WAIT not in (found, closing):
                break
            yield
        self.take(len(self.held) if closing == WAIT else max(0, closing))
        self._reader = None

    def _say(self, n: int) -> None:
        """Read the next characters as text, except whitespace around calls."""
        text, self._spaces = self._spaces + self.take(n), ""
        if text.strip() or (self._is_text and text):
            self._has_text = self._is_text = True
            self.add("content", text)
        else:
            self._spaces = text


def reads_back(form: CallForm, functions: Sequence[Function], name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the parser reads a call of a function that is written in the form, all at once and bit by bit."""
    text = written_calls(form, [{"function": {"name": name, "arguments": dict(arguments)}}])
    return all(is_call(read(form, functions, text, size), name, arguments) for size in (max(1, len(text)), 1))


def read(form: CallForm, functions: Sequence[Function], text: str, size: int) -> list[ReplyPart]:
    """Return the parts of a reply that comes in pieces of this size."""
    parser, parts = CallParser(form, functions), list[ReplyPart]()
    for at in range(0, len(text), size):
        parts += parser.feed(text[at : at + size])
    return [*parts, *parser.finish(is_cut=False)]


def is_call(parts: Sequence[ReplyPart], name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether parts of a reply are one call with these arguments."""
    names = [part.text for part in parts if part.kind == "call"]
    found = "".join(part.text for part in parts if part.kind == "arguments")
    try:
        return names == [name] and json.loads(found) == arguments
    except (ValueError, RecursionError):
        return False
