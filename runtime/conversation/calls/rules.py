"""Builds the rules of a Lark grammar: literals of forms, free text, and text that excludes some. Knows text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from runtime.conversation.calls.form import ID, INDEX, NAME, pieces
from runtime.sampling.lark import OTHER_MARKS

ANY, SPACES = r"(.|\n)*", r"\s*"
SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$/&~#-])")
HOLE_RULES = {
    ID: ("CALL_ID", "/[a-zA-Z0-9_.:-]{1,40}/"),
    INDEX: ("CALL_INDEX", "/[0-9]{1,3}/"),
    NAME: ("NAME", "/[a-zA-Z0-9_.:-]{1,128}/"),
}


SPACED: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
LENIENT = {"lenient": True}  # unknown schema keywords are not enforced
USUAL_JSON = {"x-guidance": LENIENT | SPACED}  # the format of json.dumps, which models have seen in training


class Rules:
    """Rules by name; the start rule is added at the end."""

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._free: list[str] = []  # patterns that free text excludes
        self._names: dict[tuple[str, str], str] = {}  # of rules by kind and body

    def add(self, name: str, body: str) -> str:
        """Add a rule, and return its name."""
        self._rules[name] = body
        return name

    def named(self, kind: str, body: str) -> str:
        """Add a rule, or a terminal if the kind is in capitals, and return its name; equal ones have one name."""
        return self.add(self._names.setdefault((kind, body), f"{kind}_{len(self._names)}"), body)

    def reserved(self, kind: str) -> str:
        """Return a name for a rule that is added later."""
        return self._names.setdefault((kind, f"{len(self._names)}"), f"{kind}_{len(self._names)}")

    def sequence(self, literal: str) -> str:
        """Return a form's literal as a sequence, with rules for its holes."""
        return " ".join(self._part(piece) for piece in pieces(literal)) or '""'

    def _part(self, piece: str) -> str:
        return self.add(*HOLE_RULES[piece]) if piece in HOLE_RULES else quoted(piece)

    def free_text(self, excluded: str) -> None:
        """Add a rule for text between control tokens that the grammar does not name."""
        self._free = [excluded] if excluded else []
        self.add("free", f"FREE? ({OTHER_MARKS} FREE?)*")

    def narrow_free_text(self, excluded: str) -> None:
        """Exclude more from free text."""
        self._free.append(excluded)

    def text(self, start: str) -> str:
        """Return the grammar."""
        free = {"FREE": " & ".join([r"/(.|\n)+/", *self._free])} if "free" in self._rules else {}
        return "\n".join(f"{name}: {body}" for name, body in ({"start": start} | self._rules | free).items())


def quoted(text: str) -> str:
    """Return the text as a literal."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def pairs(rules: Rules, each: Sequence[tuple[str, bool]], first: str, following: str, other: str = "") -> str:
    """Return the rule of pairs in this order, of which those that are not required may be missing; `other` pairs may
    come after them.
    """
    later = rules.named("pairs", f"({following} {other})*" if other else '""')
    none = rules.named("pairs", f"({first} {other} {later})?") if other else later
    for pair, is_required in reversed(each):
        skip_none, skip_later = ("", "") if is_required else (f" | {none}", f" | {later}")
        none, later = (
            rules.named("pairs", f"{first} {pair} {later}{skip_none}"),
            rules.named("pairs", f"{following} {pair} {later}{skip_later}"),
        )
    return none


def excluding(*texts: str, at_start: bool = False) -> str:
    """Return the set of texts that contain none of these, or with `at_start`, begin with none apart from whitespace."""
    one = "|".join(map(escaped, texts))
    return f"~/{SPACES if at_start else ANY}({one}){ANY}/"


def without(mark: str) -> str:
    """Return the set of texts that do not contain a mark.

    As a regular expression without complement it is no work together with limits of length, which otherwise multiply
    the lexer's states by those of the mark. The first character of the mark occurs in it once.
    """
    first, rest = mark[:1], mark[1:]
    if first in rest or not rest:
        return excluding(mark)
    begun = not_going_on(escaped(first), rest, first)
    starts = "|".join(escaped(mark[:n]) for n in range(1, len(mark)))
    return f"/([^{escaped(first)}]|({starts})*{begun})*({starts})*/"


def not_going_on(begun: str, rest: str, first: str) -> str:
    """Return the pattern of a mark's beginning and a character with which it neither goes on nor begins again."""
    here = rf"[^{escaped(rest[0])}{escaped(first)}]"
    return f"{begun}({here}|{not_going_on(escaped(rest[0]), rest[1:], first)})" if rest[1:] else f"{begun}{here}"


def not_beginning(mark: str) -> str:
    """Return the set of texts that do not begin with a mark."""
    found = f"([^{escaped(mark[-1])}]{ANY})?"
    for character in reversed(mark[:-1]):
        found = f"({escaped(character)}{found}|[^{escaped(character)}]{ANY})?"
    return f"/{found}/"


def ending_in(text: str) -> str:
    """Return the set of texts that contain this one at their end and nowhere else."""
    return rf"/{ANY}{escaped(text)}/ & ~/{ANY}{escaped(text)}(.|\n)+/"


def escaped(text: str) -> str:
    """Return the text as a regular expression in Lark."""
    return SPECIAL.sub(r"\\\1", text).replace("\n", r"\n")
