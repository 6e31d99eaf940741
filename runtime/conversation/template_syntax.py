"""Adjusts how a chat template is compiled: the tag that transformers adds to Jinja, and filters around expressions that
Jinja compiles to plain Python.

Knows Jinja's syntax; knows no bounds.
"""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer


class Generation(Extension):
    """The tag `{% generation %}` around a model's training text: a scope of its own, rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block as a call, as in transformers: variables set in it stay local."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller: Callable[[], str]) -> str:
        """Return the block's text."""
        return caller()


class Hooks(NodeTransformer):
    """Adds filters around expressions that Jinja compiles to plain Python: `~`, slices, literals and comparisons."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 (Jinja's names, here and below)
        """Hook `a ~ b`, with its parts in a list."""
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return hooked(parts, "concatenated")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """Hook `a[b:c:d]`; other items go through the environment."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        edges = (node.arg.start, node.arg.stop, node.arg.step)
        return hooked(node.node, "cut", *(edge or nodes.Const(None, lineno=node.lineno) for edge in edges))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        """Hook `[a, b]`."""
        return hooked(self.generic_visit(node), "made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        """Hook `(a, b)` unless it is an assignment target."""
        self.generic_visit(node)
        return hooked(node, "made") if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        """Hook `{a: b}`; keys are weighed, as they are compared."""
        self.generic_visit(node)
        for pair in node.items:
            pair.key = compared(pair.key)
        return hooked(node, "made")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Hook `a == b` and `a in b`, except with a constant, which is compared in no time."""
        self.generic_visit(node)
        if len(node.ops) == 1 and any(map(is_constant, (node.expr, node.ops[0].expr))):
            return node
        for operand in node.ops:
            operand.expr = compared(operand.expr)
        node.expr = compared(node.expr)
        return node


def is_constant(node: nodes.Expr) -> bool:
    """Whether the expression is a text, a number, none or an empty list."""
    hooked_list = node.node if isinstance(node, nodes.Filter) and node.name == "made" else node
    return isinstance(node, nodes.Const) or (isinstance(hooked_list, nodes.List) and not hooked_list.items)


def hooked(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    """Return an expression wrapped in a filter of the sandbox."""
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def compared(node: nodes.Expr) -> nodes.Expr:
    """Return an expression that is weighed before it is compared, as comparisons recurse into nested lists."""
    return node if isinstance(node, nodes.Const) else hooked(node, "weighed")
