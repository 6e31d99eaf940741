"""How a chat template is compiled: the tag that transformers adds to Jinja, and filters around what Jinja compiles to
plain Python. Knows Jinja's syntax; knows no bounds.
"""

from __future__ import annotations

from collections.abc import Callable

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer


class Generation(Extension):
    """`{% generation %}`, around what a model is trained to say: a scope of its own, written as it is."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the block as a call, as transformers has it: what is set in it stays in it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller: Callable[[], str]) -> str:
        """Return the block's text."""
        return caller()


class Hooks(NodeTransformer):
    """Filters around what Jinja compiles to Python as it stands: `~`, slices, literals and comparisons."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 (Jinja's names, here and below)
        """`a ~ b` has its parts in a list."""
        parts = nodes.List([self.visit(part) for part in node.nodes], lineno=node.lineno)
        return hooked(parts, "concatenated")

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        """`a[b:c:d]`; other items go through the environment."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        edges = (node.arg.start, node.arg.stop, node.arg.step)
        return hooked(node.node, "cut", *(edge or nodes.Const(None, lineno=node.lineno) for edge in edges))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        """`[a, b]`."""
        return hooked(self.generic_visit(node), "made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        """`(a, b)`, where it is no target."""
        self.generic_visit(node)
        return hooked(node, "made") if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        """`{a: b}`; keys are compared."""
        self.generic_visit(node)
        for pair in node.items:
            pair.key = compared(pair.key)
        return hooked(node, "made")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """`a == b`, `a in b`; a constant is compared in no time, whatever stands on the other side."""
        self.generic_visit(node)
        if len(node.ops) == 1 and any(map(is_constant, (node.expr, node.ops[0].expr))):
            return node
        for operand in node.ops:
            operand.expr = compared(operand.expr)
        node.expr = compared(node.expr)
        return node


def is_constant(node: nodes.Expr) -> bool:
    """Is it a text, a number, none or an empty list?"""
    hooked_list = node.node if isinstance(node, nodes.Filter) and node.name == "made" else node
    return isinstance(node, nodes.Const) or (isinstance(hooked_list, nodes.List) and not hooked_list.items)


def hooked(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    """Return a filter of this environment's around an expression."""
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def compared(node: nodes.Expr) -> nodes.Expr:
    """Return what is weighed before it is compared, as comparing goes into lists within lists."""
    return node if isinstance(node, nodes.Const) else hooked(node, "weighed")
