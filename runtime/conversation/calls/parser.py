"""Parses a streamed reply into text, function names and pieces of arguments.

Knows forms; knows no protocol.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.conversation.calls.argument_readers import ArgumentReader, TaggedReader, reader_for
from runtime.conversation.calls.form import DIFFERS, WAIT, CallForm, TaggedArguments, before_overlap, filled, match
from runtime.conversation.calls.past import written_calls
from runtime.conversation.calls.schemas import Function


@dataclass(frozen=True, slots=True)
class ContentPart:
    """A part of a reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThoughtPart:
    """A part of a reply's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """The start of a call of this function; its arguments follow."""

    name: str


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """A part of the arguments of the last call, as JSON."""

    text: str


Part = ContentPart | ThoughtPart | CallBegins | ArgumentText


class CallParser:
    """Parses a reply in pieces."""

    def __init__(self, form: CallForm, functions: Sequence[Function]) -> None:
        self._form, self._functions = form, functions
        self._opening = form.opening.lstrip()
        self._held, self._has_calls = "", False  # _held: text that may still become part of a call
        self._has_text = self._is_text = False  # any so far; since the last call
        self._is_begun = not form.answer  # whether the text before the answer has been handled
        self._spaces = ""  # whitespace before text, dropped if a call follows
        self._reader: ArgumentReader | None = None  # of the call whose arguments are being read
        self._is_between = False  # whether arguments have ended, so that another call may follow

    def feed(self, text: str) -> list[Part]:
        """Return the parts that are certain after this text."""
        self._held += text
        parts: list[Part] = []
        while self._step(parts, is_end=False):
            pass
        return parts

    def finish(self, is_cut: bool) -> list[Part]:
        """Return the parts still buffered at the end of the reply; if it was cut, a possible start of a call is
        dropped.
        """
        parts: list[Part] = []
        while self._step(parts, is_end=True):
            pass
        if not (is_cut or self._reader or self._is_between):
            self._say(self._held, parts)
        if self._spaces and not self._has_calls:
            parts.append(ContentPart(self._spaces))
        self._held = self._spaces = ""
        return parts

    def _step(self, parts: list[Part], *, is_end: bool) -> bool:
        """Read on; return False if more text is needed."""
        if self._reader:
            return self._read_arguments(self._reader, parts)
        if self._is_between:
            return self._after_call(parts, is_end)
        return self._outside(parts, is_end)

    def _outside(self, parts: list[Part], is_end: bool) -> bool:
        if not self._is_begun and not self._skip_beginning(is_end):
            return False
        trigger, opening = self._announcement()
        at = self._held.find(trigger) if trigger else 0
        if at < 0 or not self._functions:
            self._release(before_overlap(self._held, trigger) if self._functions else len(self._held), parts)
            return False
        if not self._held or (not trigger and self._has_text):
            self._release(len(self._held), parts)
            return False
        if trigger:
            self._release(at, parts)
        found = self._begin_call(opening, parts)
        if found == DIFFERS:
            self._release(max(1, len(trigger)), parts)
        return found != WAIT

    def _skip_beginning(self, is_end: bool) -> bool:
        """Drop the text that precedes an answer; return False if it is incomplete."""
        answer = self._form.answer
        if answer.startswith(self._held) and self._held != answer and not is_end:
            return False
        if answer and self._held.startswith(answer):
            self._held, self._has_text = self._held.removeprefix(answer), True
        self._is_begun = True
        return True

    def _announcement(self) -> tuple[str, str]:
        """Return the text that now marks a call, and all text before its function's name.

        After text, calls without a trigger look like those after other calls.
        """
        if self._form.trigger or not self._has_text:
            return self._form.trigger, self._opening
        between = (self._form.between or "").strip()
        return between, between

    def _begin_call(self, before: str, parts: list[Part]) -> int:
        """Start the call whose name follows this literal; return where its arguments begin, WAIT or DIFFERS."""
        each = [(function, self._arguments_at(before, function)) for function in self._functions]
        function, at = max(each, key=lambda found: (found[1], len(found[0].name)))
        if at < 0 or any(other == WAIT and found.name.startswith(function.name) for found, other in each):
            return WAIT if any(found == WAIT for _, found in each) else DIFFERS
        self._held, self._reader = self._held[at:], reader_for(self._form, function)
        self._has_calls, self._is_text, self._spaces = True, False, ""
        parts.append(CallBegins(function.name))
        return at

    def _arguments_at(self, before: str, function: Function) -> int:
        """Return where the arguments of a function begin if the buffered text calls it; WAIT or DIFFERS otherwise."""
        literal = before + function.name + filled(self._form.head, name=function.name)
        at = match(literal, self._held)
        if at < 0:
            return at
        rest = self._held[at:]
        if isinstance(self._form.arguments, TaggedArguments):
            begins = TaggedReader(self._form, function).begins(rest)
            return at if begins >= 0 else begins
        start = at + len(rest) - len(rest.lstrip())
        return (start if self._held[start] == "{" else DIFFERS) if start < len(self._held) else WAIT

    def _read_arguments(self, reader: ArgumentReader, parts: list[Part]) -> bool:
        read, self._held = reader.feed(self._held), ""
        if read.json:
            parts.append(ArgumentText(read.json))
        if read.rest is None:
            return False
        self._held, self._reader, self._is_between = read.rest, None, True
        return True

    def _after_call(self, parts: list[Part], is_end: bool) -> bool:
        """Start another call, or end the calls; return False if more text is needed."""
        between, closing = self._form.between, match(self._form.closing, self._held)
        found = DIFFERS if between is None else self._begin_call(between, parts)
        if found >= 0:
            self._is_between = False
            return True
        if WAIT in (found, closing) and not is_end:
            return False
        self._held, self._is_between = self._held[max(0, closing) :] if closing != WAIT else "", False
        return True

    def _release(self, n: int, parts: list[Part]) -> None:
        """Emit the first `n` buffered characters as text."""
        text, self._held = self._held[:n], self._held[n:]
        self._say(text, parts)

    def _say(self, text: str, parts: list[Part]) -> None:
        """Emit text, except whitespace around calls."""
        text, self._spaces = self._spaces + text, ""
        if text.strip() or (self._is_text and text):
            self._has_text = self._is_text = True
            parts.append(ContentPart(text))
        else:
            self._spaces = text


def reads_back(form: CallForm, functions: Sequence[Function], name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the parser reads a call of a function that is written in the form, all at once and bit by bit."""
    text = written_calls(form, [{"function": {"name": name, "arguments": dict(arguments)}}])
    return all(is_call(read(form, functions, text, size), name, arguments) for size in (max(1, len(text)), 1))


def read(form: CallForm, functions: Sequence[Function], text: str, size: int) -> list[Part]:
    """Return the parts of a reply that comes in pieces of this size."""
    parser, parts = CallParser(form, functions), list[Part]()
    for at in range(0, len(text), size):
        parts += parser.feed(text[at : at + size])
    return [*parts, *parser.finish(is_cut=False)]


def is_call(parts: Sequence[Part], name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether parts of a reply are one call with these arguments."""
    names = [part.name for part in parts if isinstance(part, CallBegins)]
    found = "".join(part.text for part in parts if isinstance(part, ArgumentText))
    try:
        return names == [name] and json.loads(found) == arguments
    except (ValueError, RecursionError):
        return False
