"""The form in which a model writes tool calls: literal text around holes for names and arguments.

Knows text alone. In a literal, a private-use character stands where a value goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from runtime.conversation.past_calls import USUAL_FIELDS, CallFields

NAME, ID, INDEX, KEY = "\ue000", "\ue001", "\ue002", "\ue003"
HOLES = re.compile(f"([{NAME}{ID}{INDEX}{KEY}])")
MARK = re.compile(r"<[^<>\s][^<>]*>|\[/?[A-Z][A-Z_]*\]")  # text that is likely to be one token

TYPES = ("string", "number", "boolean", "null", "array", "object")  # of JSON
COMPACT, TIGHT, LOOSE = "compact", "tight", "loose"  # whitespace of JSON: as json.dumps writes it, none, any
TEXT, JSON, PYTHON, GEMMA = "text", "json", "python", "gemma"  # notations of a value
GEMMA_QUOTE = '<|"|>'  # around text in Gemma's notation


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """Arguments written as one JSON object, with whitespace of this kind."""

    whitespace: str = COMPACT


@dataclass(frozen=True, slots=True)
class ValueStyle:
    """How a value of one type is written: literals before and after it, and its notation."""

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
    """How calls are written: `opening` name `head` arguments, any number of times `between` name `head` arguments, then
    `closing`.
    """

    opening: str
    head: str
    closing: str
    between: str | None = None  # None: a reply holds one call
    arguments: JsonArguments | TaggedArguments = field(default_factory=JsonArguments)
    trigger: str = ""  # the text that announces calls within a reply; "": they can only begin it
    answer: str = ""  # what an answer in words begins with
    past: CallFields | None = USUAL_FIELDS  # of earlier calls; None where the template takes these as text

    @property
    def is_announced(self) -> bool:
        """Do calls follow one mark or word that stands in no answer?"""
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
    """Return a literal with values in its holes."""
    values = {NAME: name, ID: id, INDEX: index, KEY: key}
    return HOLES.sub(lambda hole: values[hole[0]], literal)


def pieces(literal: str) -> Iterator[str]:
    """Yield text and holes of a literal in their order."""
    yield from filter(None, HOLES.split(literal))
