"""Reads grammars in llama.cpp's notation (GBNF) as trees. Knows its syntax; knows no vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runtime.sampling.gbnf_rules import (
    ANY,
    LAST,
    Alternatives,
    Characters,
    Literal,
    Node,
    Ranges,
    Reference,
    Repeat,
    Series,
    Token,
)

PARTS = re.compile(
    r"""(?P<space>[ \t]+|\#[^\r\n]*)
    | (?P<line>\r\n?|\n)
    | (?P<literal>"(?:\\.|[^"\\])*+")
    | (?P<characters>\[(?:\\.|[^\]\\])*+\])
    | (?P<token>!?<(?:\[\d+\]|[^>\[][^>]*)>)
    | (?P<define>::=)
    | (?P<name>[a-zA-Z0-9_-]+)
    | (?P<times>[*+?]|\{\s*(?P<least>\d{1,9})\s*(?P<comma>,\s*(?P<most>\d{1,9})?\s*)?\})
    | (?P<mark>[()|.])""",
    re.VERBOSE | re.DOTALL,
)
CHARACTER = re.compile(
    r"""\\x(?P<x>[0-9a-fA-F]{2}) | \\u(?P<u>[0-9a-fA-F]{4}) | \\U(?P<U>[0-9a-fA-F]{8})
    | \\(?P<escaped>[trn\\"\[\]/-]) | (?P<plain>[^\\])""",
    re.VERBOSE | re.DOTALL,
)
CONTROLS = {"t": "\t", "r": "\r", "n": "\n"}
MAX_GROUPS = 100  # groups within each other
MAX_TIMES = 2000  # repetitions that llama.cpp allows; more are as good as any number


def rules_of(text: str) -> dict[str, Node]:
    """Return the rules by name; of two with one name the last. Raises ValueError if the text is not in the notation."""
    reader, found = GbnfReader(text), dict[str, Node]()
    while (name := reader.name()) is not None:
        found[name] = reader.body()
    if "root" not in found:
        raise ValueError("it has no rule 'root'")
    return found


class GbnfReader:
    """Reads rules one after the other."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._part = self._next()

    def name(self) -> str | None:
        """Return the name of the next rule and go to its body, or None at the end."""
        self._skip_lines()
        if not self._part:
            return None
        name = self._taken("name")
        self._taken("define")
        self._skip_lines()
        return name

    def body(self) -> Node:
        """Return what the rule allows, and go to its end."""
        found = self._choice()
        if self._part and self._part.lastgroup != "line":
            raise self._error()
        return found

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._is("|"):
            self._go_on()
            self._skip_lines()
            options.append(self._sequence())
        return Alternatives(tuple(options)) if len(options) > 1 else options[0]

    def _sequence(self) -> Node:
        parts = list[Node]()
        while (part := self._single()) is not None:
            while self._part and self._part.lastgroup == "times":
                part = repeated(part, self._part)
                self._go_on()
            parts.append(part)
        return parts[0] if len(parts) == 1 else Series(tuple(parts))

    def _single(self) -> Node | None:
        """Return the next part, or None if the sequence ends."""
        kind, source = (self._part.lastgroup, self._part[0]) if self._part else ("", "")
        if source == "(":
            return self._group()
        if kind not in ("literal", "characters", "token", "name") and source != ".":
            return None
        try:
            found = node_of(kind or "", source)
        except ValueError as error:
            raise self._error(str(error)) from error
        self._go_on()
        return found

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_GROUPS:
            raise ValueError(f"more than {MAX_GROUPS} groups lie within each other")
        self._go_on()
        found = self._choice()
        if not self._is(")"):
            raise self._error()
        self._depth -= 1
        self._go_on()
        return found

    def _is(self, mark: str) -> bool:
        return self._part is not None and self._part[0] == mark

    def _taken(self, kind: str) -> str:
        """Return the next part, which must be of this kind, and go on."""
        if self._part is None or self._part.lastgroup != kind:
            raise self._error("a rule begins with its name and '::='")
        found = self._part[0]
        self._go_on()
        return found

    def _skip_lines(self) -> None:
        while self._part and self._part.lastgroup == "line":
            self._go_on()

    def _go_on(self) -> None:
        self._part = self._next()

    def _next(self) -> re.Match[str] | None:
        """Return the next part; space is skipped, and lines within groups."""
        while self._at < len(self._text):
            part = PARTS.match(self._text, self._at)
            if part is None:
                raise self._error(at=self._at)
            self._at = part.end()
            if part.lastgroup != "space" and (part.lastgroup != "line" or not self._depth):
                return part
        return None

    def _error(self, reason: str = "", at: int | None = None) -> ValueError:
        at = at if at is not None else self._part.start() if self._part else len(self._text)
        line = self._text.count("\n", 0, at) + 1
        near = " ".join(self._text[at : at + 24].split())
        where = f"line {line}, at {near!r}" if near else "it ends too early"
        return ValueError(f"{where}: {reason}" if reason else where)


def node_of(kind: str, source: str) -> Node:
    """Return the tree of a part that has no parts. Raises ValueError for an unknown escape."""
    if kind == "token":
        return Token(source)
    if kind == "name":
        return Reference(source)
    if kind == "literal":
        return Literal(joined("".join(chr(code) for code, _ in characters(source[1:-1]))))
    return class_of(source) if kind == "characters" else ANY


def joined(text: str) -> str:
    """Return a text with a character for each pair of surrogates. Raises ValueError for one alone."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise ValueError("a surrogate alone is no character") from error


def characters(source: str) -> Iterator[tuple[int, str]]:
    """Yield (code point, source) of each character. Raises ValueError for an unknown escape."""
    at = 0
    while at < len(source):
        found = CHARACTER.match(source, at)
        if found is None:
            raise ValueError(f"{source[at : at + 2]} is no escape")
        digits = found["x"] or found["u"] or found["U"]
        code = int(digits, 16) if digits else ord(CONTROLS.get(found["escaped"], found["escaped"] or found["plain"]))
        if code > LAST:
            raise ValueError(f"{found[0]} is no character")
        yield code, found[0]
        at = found.end()


def class_of(source: str) -> Node:
    """Return the class of characters in brackets; without any, llama.cpp takes it for no text."""
    is_negative = source.startswith("[^")
    found, each, at = list[tuple[int, int]](), list(characters(source[1 + is_negative : -1])), 0
    while at < len(each):
        is_range = len(each) > at + 2 and each[at + 1][1] == "-"
        found.append((each[at][0], each[at + 2 * is_range][0]))
        at += 1 + 2 * is_range
    if not found:
        return Series(())
    return Characters(complement(found) if is_negative else tuple(found))


def complement(ranges: list[tuple[int, int]]) -> Ranges:
    """Return all other code points."""
    found, begin = list[tuple[int, int]](), 0
    for low, high in sorted(each for each in ranges if each[0] <= each[1]):
        if low > begin:
            found.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*found, (begin, LAST)) if begin <= LAST else tuple(found)


def repeated(part: Node, times: re.Match[str]) -> Node:
    """Return the part as often as the source of a repetition says. Raises ValueError for more than is allowed."""
    usual = {"*": (0, None), "+": (1, None), "?": (0, 1)}
    if times[0] in usual:
        return Repeat(part, *usual[times[0]])
    least = int(times["least"])
    most = least if times["comma"] is None else int(times["most"]) if times["most"] else None
    if least > MAX_TIMES:
        raise ValueError(f"{least} repetitions are more than the {MAX_TIMES} that are allowed")
    if most is not None and most < least:
        raise ValueError(f"{{{least},{most}}} repeats at most less often than at least")
    if most == 0:
        return Series(())
    return Repeat(part, least, None if most is not None and most > MAX_TIMES else most)
