"""Divides a grammar into lexemes for llguidance, whose lexer takes the longest match, so that the division changes
nothing about which texts are allowed.

A part in which no rule refers to itself could be one lexeme. It is divided further where it would take what another
lexeme begins with, down to single characters. Knows GBNF's trees.
"""

from __future__ import annotations

from collections import defaultdict

from runtime.sampling.automata import Lexer, Places, bits, combined, union
from runtime.sampling.gbnf_rules import Characters, GbnfRules, Literal, Node, Reference, Series, Token, inner

MAX_LEXEMES = 600  # of a grammar, beyond which all are single characters


class Division:
    """Which parts of a grammar are lexemes."""

    def __init__(self, rules: GbnfRules) -> None:
        self.rules, self._lexer, self._divided = rules, Lexer(rules), set[Node]()
        if rules.is_regular(Reference("root")):
            return  # one lexeme
        while found := {node for node in self._swallowing() if is_divisible(node)}:
            self._divided |= found

    def is_lexeme(self, node: Node) -> bool:
        """Whether a part is one lexeme; tokens are as well."""
        return isinstance(node, Token) or (node not in self._divided and self.rules.is_regular(node))

    def _swallowing(self) -> set[Node]:
        """Return lexemes that would take what others begin with, or that are too many or too large to know."""
        places = LexemePlaces(self)
        nodes = places.nodes
        if len(nodes) > MAX_LEXEMES:
            return set(nodes)
        if large := {node for node in nodes if self._lexer.is_large(node)}:
            return large
        begins = [self._lexer.begins(node) for node in nodes]
        after = [union(begins[each] for each in bits(follow)) for follow in places.follow]
        together = self._together(places, begins)
        return {nodes[q] for p in together for q in bits(together[p]) if self._takes(nodes[q], nodes[p], after[p])}

    def _takes(self, longer: Node, shorter: Node, after: int) -> bool:
        return is_divisible(longer) and self._lexer.swallows(longer, shorter, after)

    def _together(self, places: LexemePlaces, begins: list[int]) -> dict[int, int]:
        """Return for each place those that may be next after the same text and begin with the same characters."""
        found, seen, waiting = defaultdict[int, int](int), defaultdict[int, int](int), [(places.first, places.first)]
        while waiting:
            left, right = waiting.pop()
            for p in bits(left):
                new, seen[p] = right & ~seen[p], seen[p] | right
                alike = [q for q in bits(new) if p == q or begins[p] & begins[q] or not (begins[p] or begins[q])]
                found[p] |= union(1 << q for q in alike)
                same = [q for q in alike if p == q or self._lexer.meet(places.nodes[p], places.nodes[q])]
                waiting += [(places.follow[p], places.follow[q]) for q in same]
        return found


def is_divisible(node: Node) -> bool:
    """Whether a lexeme has parts."""
    return not isinstance(node, Token | Characters) and not (isinstance(node, Literal) and len(node.text) < 2)


class LexemePlaces:
    """The places of lexemes in a grammar, and which may follow which, as if a rule were followed alike wherever it is
    used.
    """

    def __init__(self, division: Division) -> None:
        self.nodes: list[Node] = []
        self.follow: list[int] = []
        self._division, self._numbers, self._n = division, dict[tuple[str, int], int](), 0
        self._rules = defaultdict[str, Places](lambda: Places(is_empty=False))
        while self._has_news():
            pass
        self.first = self._rules["root"].first

    def _has_news(self) -> bool:
        """Go through all rules once; return whether anything was new."""
        before = self.follow.copy(), dict(self._rules)
        for name, body in self._division.rules.bodies.items():
            self._n = 0
            self._rules[name] = self._add(body, name)
        return (self.follow, self._rules) != before

    def _add(self, node: Node, rule: str) -> Places:
        if self._division.is_lexeme(node):
            return self._place(node, rule)
        if isinstance(node, Literal):
            return self._add(Series(tuple(map(Literal, node.text))), rule)
        if isinstance(node, Reference):
            return self._rules[node.name]
        return combined(node, [self._add(part, rule) for part in inner(node)], self.follow)

    def _place(self, node: Node, rule: str) -> Places:
        self._n += 1
        number = self._numbers.setdefault((rule, self._n), len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self.follow.append(0)
        return Places(1 << number, 1 << number, not isinstance(node, Token) and self._division.rules.may_be_empty(node))
