"""Writes calls in a form and reads them, to know whether the form carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.conversation.calls.form import CallForm
from runtime.conversation.calls.function import Function
from runtime.conversation.calls.parser import ArgumentText, CallBegins, CallParser, Part
from runtime.conversation.calls.past import written_calls


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
