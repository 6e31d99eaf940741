"""Writes grammars of llama.cpp's notation (GBNF) in Lark, with tokens: <[1000]>, <think>, and ! for any other."""

from __future__ import annotations

import re

from runtime.sampling.control_tokens import NOTHING, ControlTokens, all_but, quoted, these
from runtime.sampling.gbnf import rules_of
from runtime.sampling.gbnf_rules import (
    Alternatives,
    Characters,
    GbnfRules,
    Literal,
    Node,
    Reference,
    Repeat,
    Series,
    Token,
    inner,
)
from runtime.sampling.lexemes import Division

BY_ID = re.compile(r"<\[(\d+)\]>")
SURROGATES = 0xD800, 0xDFFF  # no characters


def gbnf_as_lark(text: str, control: ControlTokens) -> str:
    """Return the grammar in Lark. Raises ValueError if it is invalid, or names no token of the vocabulary."""
    try:
        rules = {name: with_tokens(body, control) for name, body in rules_of(text).items()}
        return LarkWriter(Division(GbnfRules(rules))).text()
    except RecursionError as error:
        raise ValueError("its groups nest too deeply") from error


def with_tokens(node: Node, control: ControlTokens) -> Node:
    """Return a tree in which tokens are references by id, and control tokens may stand for their names in text."""
    if isinstance(node, Token):
        return token_of(node.source, control)
    if isinstance(node, Literal):
        named = [
            Alternatives((Literal(part), Token(these([token])))) if token is not None else Literal(part)
            for part, token in control.parted(node.text)
        ]
        return named[0] if len(named) == 1 else Series(tuple(named))
    parts = tuple(with_tokens(part, control) for part in inner(node))
    if isinstance(node, Repeat):
        return Repeat(parts[0], node.least, node.most)
    return type(node)(parts) if isinstance(node, Series | Alternatives) else node


def token_of(part: str, control: ControlTokens) -> Token:
    """Return a reference to a token by its id. Raises ValueError for one that the vocabulary lacks."""
    source = part.removeprefix("!")
    by_id = BY_ID.fullmatch(source)
    token = int(by_id[1]) if by_id else control.find(source)
    if token is None:
        raise ValueError(f"{source} is not a token of this model's vocabulary")
    return Token(these([token]) if part == source else all_but([token, *control.ends]))


class LarkWriter:
    """Writes the rules of a grammar, with a name for every part that has parts, so that groups never nest."""

    def __init__(self, division: Division) -> None:
        self._division = division
        self._names: dict[tuple[Node, bool], str] = {(Reference("root"), False): "start"}
        self._waiting: list[tuple[Node, bool]] = [
            *self._names
        ]  # named parts that are not written yet, and whether in a lexeme

    def text(self) -> str:
        """Return the grammar."""
        lines = []
        while self._waiting:
            node, is_inside = self._waiting.pop()
            name = self._names[node, is_inside]
            root_too = self._division.is_lexeme(node) and not is_inside
            body = self._part(node, is_inside) if root_too else self._body(node, is_inside)
            lines.append(f"{name}: {body}")
        return "\n".join(lines)

    def _body(self, node: Node, is_inside: bool) -> str:
        """Return what a part with a name allows; `is_inside`: whether it is written within a lexeme."""
        if isinstance(node, Reference):
            body = self._division.rules.bodies[node.name]
            return self._part(body, is_inside) if not inner(body) else self._body(body, is_inside)
        if isinstance(node, Literal):  # divided
            return " ".join(map(quoted, node.text))
        parts = [self._part(part, is_inside) for part in inner(node)]
        if isinstance(node, Repeat):
            return parts[0] + suffix(node)
        return (" | " if isinstance(node, Alternatives) else " ").join(parts) or '""'

    def _part(self, node: Node, is_inside: bool) -> str:
        """Return a part as text, or its name."""
        is_lexeme = is_inside or self._division.is_lexeme(node)
        if isinstance(node, Token):
            return node.source
        if isinstance(node, Literal) and is_lexeme:
            return quoted(node.text)
        if isinstance(node, Characters):
            return regex(node)
        return self._named(node, is_lexeme)

    def _named(self, node: Node, is_lexeme: bool) -> str:
        if (node, is_lexeme) not in self._names:
            self._names[node, is_lexeme] = f"{'T' if is_lexeme else 'r'}{len(self._names)}"
            self._waiting.append((node, is_lexeme))
        return self._names[node, is_lexeme]


def suffix(node: Repeat) -> str:
    """Return a repetition in Lark."""
    usual = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    most = "" if node.most is None else node.most
    return usual.get((node.least, node.most)) or f"{{{node.least},{most}}}"


def regex(node: Characters) -> str:
    """Return a class of characters as a regular expression."""
    found, (low_surrogate, high_surrogate) = list[str](), SURROGATES
    for low, high in node.ranges:
        each = [(low, min(high, low_surrogate - 1)), (max(low, high_surrogate + 1), high)]
        found += [f"\\u{{{begin:x}}}-\\u{{{end:x}}}" for begin, end in each if begin <= end]
    return f"/[{''.join(found)}]/" if found else NOTHING
