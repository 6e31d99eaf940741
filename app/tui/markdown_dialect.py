"""Markdown as language models write it: HTML is text, line breaks are kept, doctests are code, `__init__` keeps its
underscores and `main.py` is not a link; the items of a list are numbered one after the other.

Knows markdown-it's rules; knows no widgets.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

DOCTEST = ">>>"
DUNDER = re.compile(r"__[A-Za-z](?:[A-Za-z0-9]|_(?!_))*__(?!\w)")
INDENTS = "indents"  # key in a token's `meta`: the indentation of its lines, in columns
PARAGRAPHS = ["paragraph", "reference", "blockquote", "list"]  # blocks that a doctest may interrupt


def markdown_parser() -> MarkdownIt:
    """Return a parser of this dialect."""
    parser = MarkdownIt("gfm-like", {"html": False})
    if parser.linkify is not None:
        parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False})
    parser.block.ruler.before("blockquote", "doctest", doctest, {"alt": PARAGRAPHS})
    parser.inline.ruler.before("emphasis", "dunder", dunder)
    parser.core.ruler.push("line_breaks", line_breaks)
    parser.core.ruler.push("numbers", numbers)
    return parser


def doctest(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Block rule: a doctest, from >>> to the next empty line, is Python code and not three nested quotes."""
    begin = state.bMarks[first] + state.tShift[first]
    if not state.src.startswith(DOCTEST, begin) or state.is_code_block(first):
        return False
    if silent:
        return True
    end = first + 1
    while end < last and not state.isEmpty(end) and state.sCount[end] >= state.blkIndent:
        end += 1
    token = state.push("fence", "code", 0)
    token.info, token.markup, token.map = "pycon", "```", [first, end]
    token.content = state.getLines(first, end, state.sCount[first], True)
    state.line = end
    return True


def dunder(state: StateInline, silent: bool) -> bool:
    """Inline rule: a Python name between double underscores is not bold."""
    found = DUNDER.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def line_breaks(state: StateCore) -> None:
    """Core rule: keep the model's line breaks, and record the indentation of the lines."""
    for token in state.tokens:
        if token.type == "inline":
            lines = token.content.split("\n")
            token.meta[INDENTS] = [len(line) - len(line.lstrip(" ")) for line in lines]
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


def numbers(state: StateCore) -> None:
    """Core rule: number the items of a list one after the other from its first, all numbers as wide as the last."""
    open_lists: list[list[Token]] = []
    for token in state.tokens:
        if token.type == "list_item_open":
            open_lists[-1].append(token)
        elif token.type in ("bullet_list_open", "ordered_list_open"):
            open_lists.append([])
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            items = open_lists.pop()
            if token.type == "ordered_list_close":
                first = int(items[0].info)
                width = len(str(first + len(items) - 1))
                for number, item in enumerate(items, first):
                    item.info = str(number).rjust(width)
