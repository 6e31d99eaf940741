"""Describes how a model writes tool calls: literal text around holes for names and arguments, and matches these
literals against streamed text.

Knows text alone. In a literal, a private-use character marks each hole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from runtime.conversation.past_calls import USUAL_FIELDS, CallFields

NAME, ID, INDEX, KEY = "\ue000", "\ue001", "\ue002", "\ue003"
HOLES = re.compile(f"([{NAME}{ID}{INDEX}{KEY}])")
MARK = re.compile(r"<[^<>\s][^<>]*>|\[/?[A-Z][A-Z_]*\]")  # text that is probably one token

WAIT, DIFFERS = -1, -2  # more text is needed; the text does not match
NAME_OR_ID, KEY_NAME = re.compile(r"[\w.:$-]*"), re.compile(r"[\w.$-]*")

TYPES = ("string", "number", "boolean", "null", "array", "object")  # of JSON
COMPACT, TIGHT, LOOSE = "compact", "tight", "loose"  # whitespace of JSON: as in json.dumps, none, any
TEXT, JSON, PYTHON, GEMMA = "text", "json", "python", "gemma"  # notations of a value
GEMMA_QUOTE = '<|"|>'  # around text in Gemma's notation


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments written as one JSON object, with this kind of whitespace."""

    whitespace: str = COMPACT


@dataclass(frozen=True, slots=True)
class ValueStyle:
    """The format of values of one type: literals before and after the value, and its notation."""

    before: str
    after: str
    notation: str


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """Arguments written one by one: a key, then a value in the style of its JSON type."""

    first: str  # before the first key
    next: str  # before every other key
    styles: Mapping[str, ValueStyle]


@dataclass(frozen=True, slots=True)
class CallForm:
    """The format of calls: `opening` name `head` arguments, then `closing`.

    Further calls are each `between` name `head` arguments, before `closing`.
    """

    opening: str
    head: str
    closing: str
    between: str | None = None  # None: one call per reply
    arguments: JsonArguments | TaggedArguments = field(default_factory=JsonArguments)
    trigger: str = ""  # text that announces calls within a reply; "": calls only start a reply
    answer: str = ""  # the text that an answer in words starts with
    past: CallFields | None = USUAL_FIELDS  # fields of earlier calls; None where the template takes these as text

    @property
    def is_announced(self) -> bool:
        """Whether calls follow a single mark or word that occurs in no answer."""
        marks = MARK.findall(self.trigger)
        return bool(self.trigger) and (not marks or marks == [self.trigger])

    def ending_early(self, is_end: Callable[[str], bool]) -> CallForm:
        """Return the form without marks that end a reply, as nothing is generated after one."""
        between = self.between
        if between is not None and any(map(is_end, MARK.findall(between))):
            between = None
        ends = (mark.start() for mark in MARK.finditer(self.closing) if is_end(mark[0]))
        closing = self.closing[: next(ends, None)]
        begins = [mark.end() for mark in MARK.finditer(self.opening) if is_end(mark[0])]
        opening = self.opening[max(begins, default=0) :]
        trigger = self.trigger if self.trigger in opening else ""
        return replace(self, opening=opening, trigger=trigger, between=between, closing=closing)


def filled(literal: str, *, name: str = NAME, id: str = ID, index: str = INDEX, key: str = KEY) -> str:
    """Return a literal with its holes filled."""
    values = {NAME: name, ID: id, INDEX: index, KEY: key}
    return HOLES.sub(lambda hole: values[hole[0]], literal)


def pieces(literal: str) -> Iterator[str]:
    """Yield the text and the holes of a literal in order."""
    yield from filter(None, HOLES.split(literal))


def match(literal: str, text: str, start: int = 0) -> int:
    """Return the position in `text` after a literal that begins at `start`; WAIT or DIFFERS if there is none.

    Whitespace may be missing or added, as models vary it. A hole matches a name or a number.
    """
    i = start
    for character in literal:
        if HOLES.match(character):
            i = (KEY_NAME if character == KEY else NAME_OR_ID).match(text, i).end()  # type: ignore[union-attr]  # matches anything
            if i == len(text):
                return WAIT
            continue
        while i < len(text) and text[i] != character and text[i].isspace():
            i += 1
        if i < len(text) and text[i] == character:
            i += 1
        elif not character.isspace():
            return WAIT if i >= len(text) else DIFFERS
    return WAIT if literal and literal[-1].isspace() and i >= len(text) else i
