"""Splits the text of a probe's turn: finds where a call begins, and separates literals from holes."""

from __future__ import annotations

import json
import re
from typing import Any

from runtime.conversation.calls import form as forms
from runtime.conversation.calls.form import MARK, ValueStyle
from runtime.conversation.calls.values import written
from runtime.conversation.past_calls import CallFields

NAMES = ("zqalpha", "zqbravo")
ID = "call_zqzq000{}"
WORD_MARK = re.compile(r"[A-Za-z_]{4,}[\[(:]")  # announces calls where no mark does
Arguments = dict[str, Any]
Span = tuple[int, int]


class NoFormError(Exception):
    """A template does not write calls in a recognizable form."""


def beginning(called: str, answered: str, prompt: str) -> int:
    """Return where the text of a calling turn begins: after the prompt of a reply, or where it differs from a turn that
    answers.
    """
    return len(prompt) if called.startswith(prompt) else len(snapped(shared(called, answered)))


def trigger_of(opening: str, answered: str) -> str:
    """Return the beginning of a call that identifies it, or "" if nothing distinctive begins it."""
    for mark in MARK.finditer(opening):
        if opening[: mark.end()] not in answered:
            return opening[: mark.end()]
    whole = opening.split("\n", maxsplit=1)[0]
    if opening.startswith("<") and not forms.HOLES.search(opening):
        return opening
    word = WORD_MARK.match(whole)
    return word[0] if word else ""


def required(span: Span | None) -> Span:
    """Return the span. Raises NoFormError if it is None."""
    if span is None:
        raise NoFormError
    return span


def json_span(text: str, arguments: Arguments, start: int = 0) -> Span | None:
    """Return the span of the arguments as a JSON object, or None."""
    key = text.find(next(iter(arguments)), start)
    begin = text.rfind("{", 0, max(0, key))
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin) if begin >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    return (begin, end) if value == arguments else None


def style_of(text: str, value: Any) -> ValueStyle | None:
    """Return the style of a value in the text after its key, or None if it is in no known notation."""
    for notation in (forms.JSON, forms.PYTHON, forms.GEMMA):
        before, has_value, after = text.rpartition(written(value, notation))
        if has_value:
            return ValueStyle(before, after, notation)
    return None


def between(text: str, left: str, right: str) -> str:
    """Return the text between the first `left` and the next `right`. Raises NoFormError if either is missing."""
    _, has_left, rest = text.partition(left)
    inside, has_right, _ = rest.partition(right)
    if not (has_left and has_right):
        raise NoFormError
    return inside


def holed(text: str, key: str = "") -> str:
    """Return the text with holes in place of the names and ids of probes, and of this key."""
    for i, name in enumerate(NAMES):
        for fields in (CallFields(), CallFields(short_ids=True)):
            text = text.replace(fields.id_of(ID.format(i), name, i), forms.ID)
        text = text.replace(name, forms.NAME)
    return text.replace(key, forms.KEY) if key else text


def numbered(first: str, second: str) -> tuple[str, str]:
    """Return both texts with a hole for the number by which they differ, if the second has the next one."""
    for i, (one, two) in enumerate(zip(first, second, strict=False)):
        if one != two:
            if one.isdecimal() and two.isdecimal() and int(two) == int(one) + 1:
                return tuple(text[:i] + forms.INDEX + text[i + 1 :] for text in (first, second))  # type: ignore[return-value]
            break
    return first, second


def shared(first: str, second: str) -> str:
    """Return the common beginning of two texts."""
    n = next((i for i, (one, two) in enumerate(zip(first, second, strict=False)) if one != two), None)
    return first[: min(len(first), len(second)) if n is None else n]


def snapped(start: str) -> str:
    """Return a common beginning without a mark that it cuts."""
    cut = max(start.rfind("<"), start.rfind("["))
    return start[:cut] if cut > max(start.rfind(">"), start.rfind("]")) else start


def snapped_end(end: str) -> str:
    """Return a common end without a mark that it cuts."""
    closing, opening = end.find(">"), end.find("<")
    return end[closing + 1 :] if closing >= 0 and (opening < 0 or closing < opening) else end
