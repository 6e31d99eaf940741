"""Adapts grammars in llguidance's Lark to a vocabulary: its rules treat control tokens as tokens. Terminals and JSON
schemas cannot contain any and stay text.

`other_marks` is a rule of every grammar: any control token that the grammar does not name and that ends no turn.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from runtime.sampling.bounds import deepest
from runtime.sampling.control_tokens import NOTHING, ControlTokens, all_but, ranges, these
from runtime.sampling.gbnf_rules import MAX_DEPTH

OTHER_MARKS = "other_marks"
LEXEMES = re.compile(
    r"""(?P<comment>(?:\#|//)[^\n]*)
    | (?P<json>%(?:json|regex|llguidance)\b)
    | (?P<head>^[ \t]*(?:%ignore\b|[!?_]*[a-zA-Z](?:"(?:\\.|[^"\\\n])*+"|/(?:\\.|[^/\\\n])++/|::\w|[^:"/\#|\n])*+:))
    | (?P<string>"(?:\\.|[^"\\\n])*"i?)
    | (?P<regex>/(?:\\.|[^/\\\n])+/)
    | (?P<token><[^<>\s]+>)
    | (?P<name>[!?_]*[a-zA-Z][\w-]*)""",
    re.MULTILINE | re.VERBOSE,
)
SPACE = re.compile(r"\s*")
RULE = re.compile(r"\s*[!?_]*[a-z]")
LISTED = re.compile(r"<\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\]>")
# Options that make a rule a terminal
LEXEME = re.compile(r'\[(?:[^\]"]|"[^"]*")*?\b(?:lazy|stop|suffix|max_tokens|temperature)\b(?=\s*[=,\]])')


def lexemes(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a grammar in order with their kind: the name of a group above, or "" for all else."""
    at = 0
    while match := LEXEMES.search(text, at):
        yield "", text[at : match.start()]
        at = json_end(text, match.end()) if match.lastgroup == "json" else match.end()
        yield match.lastgroup or "", text[match.start() : at]
    yield "", text[at:]


def json_end(text: str, at: int) -> int:
    """Return the position after the JSON value that begins at `at`, or `at` if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, SPACE.match(text, at).end())[1]  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return at


@dataclass(frozen=True)
class LarkGrammar:
    """A grammar in Lark, parsed for a vocabulary."""

    text: str
    control: ControlTokens

    @cached_property
    def _lexemes(self) -> list[tuple[str, str]]:
        return list(lexemes(self.text))

    @property
    def tokens(self) -> frozenset[int]:
        """The ids of the control tokens that it uses."""
        return frozenset(self.control.ids.values()) if self._asks_for_others else frozenset(self._named)

    def with_tokens(self) -> str:
        """Return the grammar with control tokens allowed as tokens as well as text. Raises ValueError for rules that
        nest too deeply.
        """
        if (depth := deepest("", lambda name: self._references.get(name, ()), str)) > MAX_DEPTH:
            raise ValueError(f"{depth} of its rules lie within each other, and more than {MAX_DEPTH} are too many")
        found, is_rule = list[str](), False
        for kind, part in self._lexemes:
            if kind == "head":
                is_rule = RULE.match(part) is not None and not LEXEME.search(part)
            found.append(self._rewritten(kind, part) if is_rule else part)
        if self._asks_for_others:
            others = set(self.control.ids.values()) - self._named
            found.append(f"\n{OTHER_MARKS}: {these(others) if others else NOTHING}\n")
        return "".join(found)

    def _rewritten(self, kind: str, part: str) -> str:
        """Return a part of a rule, with control tokens."""
        if kind == "string":
            return self.control.spelled_or_whole(part)
        return reference(part, self.control) if kind == "token" else part

    @cached_property
    def _references(self) -> dict[str, list[str]]:
        """The names that each rule or terminal refers to, and under "" all that have a definition."""
        found, rule = defaultdict[str, list[str]](list), ""
        for kind, name in self._names:
            if kind == "head":
                rule = name
                found[""].append(rule)
            else:
                found[rule].append(name)
        return found

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        """The names of rules and terminals in order, each with whether it is a head or refers to one."""
        parts = ((kind, re.split(r"[:.\[]", part)[0].strip(" \t!?")) for kind, part in self._lexemes)
        return [each for each in parts if each[0] in ("head", "name")]

    @property
    def _asks_for_others(self) -> bool:
        """Whether it refers to `other_marks` without defining that rule."""
        return ("name", OTHER_MARKS) in self._names and ("head", OTHER_MARKS) not in self._names

    @cached_property
    def _named(self) -> set[int]:
        """The ids of the control tokens that a literal contains or a reference names."""
        found = set[int]()
        for kind, part in self._lexemes:
            if kind == "string":
                found |= self.control.named(part)
            elif kind == "token":
                found |= expanded(reference(part, self.control))
        return found & set(self.control.ids.values())


def reference(source: str, control: ControlTokens) -> str:
    """Return a reference to tokens by id; a reference to any, or to all but some, excludes those that end a turn."""
    if not source.startswith("<["):
        token = control.find(source)
        return source if token is None or token in control.ends else these([token])
    if source == "<[*]>":
        return all_but(control.ends)
    if source.startswith("<[^") and control.ends:
        return f"{source[:-2]},{ranges(control.ends)}]>"
    return source


def expanded(source: str) -> set[int]:
    """Return the ids that a reference lists."""
    found = set[int]()
    if LISTED.fullmatch(source):
        for part in source[2:-2].split(","):
            first, _, last = part.partition("-")
            found |= {*range(int(first), int(last or first) + 1)}
    return found
