"""A reply's Markdown on screen.

While a reply grows, only its last block, or the last item of a list, changes: in place if it has the same blocks inside
as before. So a reply does not delay key presses. Knows the blocks; knows no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from markdown_it.token import Token
from textual.await_complete import AwaitComplete
from textual.widgets import Markdown

from app.tui.markdown_dialect import markdown_parser
from app.tui.private_textual import MarkdownBlock, MarkdownFence, growing, parsed
from app.tui.widgets.markdown_blocks import BLOCKS, FIRST, grow

MORE = "-more"  # class of a list's later items
STEP = 8  # columns that code scrolls at a time
LISTS = ("bullet_list_open", "ordered_list_open")
WITH_TEXT = ("inline", "fence", "code_block")  # tokens that a block shows


@dataclass(slots=True)
class Part:
    """A top-level block; of a list, one item as a list of its own. Equal parts look the same."""

    tokens: list[Token]
    line: int = field(compare=False)  # of the text, where the block begins, or the whole list
    is_more: bool = False  # whether it is an item that continues a list
    block: MarkdownBlock = field(init=False, compare=False)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """The kinds of the blocks that it consists of, with the numbers of items."""
        return [(each.type, each.info if each.type == "list_item_open" else "") for each in self.tokens]

    async def become(self, other: Part) -> bool:
        """Let the block on screen grow into that of another part, in place; return whether that is possible."""
        is_table = self.tokens[0].type == other.tokens[0].type == "table_open"
        if self.is_more != other.is_more or not (is_table or self.kinds == other.kinds):
            return False
        return await grow(self.block, other.block, sum(each.type in WITH_TEXT for each in self.tokens))


def parts_of(text: str, line: int) -> Iterator[Part]:
    """Yield the parts of a text from that line on, where a block begins."""
    tokens = markdown_parser().parse("".join(text.splitlines(keepends=True)[line:]))
    for block in siblings(tokens):
        begin = line + (block[0].map or [0])[0]
        items = siblings(block[1:-1]) if block[0].type in LISTS else []
        for token in block:
            token.map, token.hidden = None, False  # which are no matter of looks
        for item in items:
            yield Part([block[0], *item, block[-1]], begin, item is not items[0])
        if not items:
            yield Part(block, begin)


def siblings(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of each block on the level of the first one."""
    found: list[list[Token]] = []
    for token in tokens:
        if token.level == tokens[0].level and token.nesting >= 0:
            found.append([])
        found[-1].append(token)
    return found


@growing
class ReplyMarkdown(Markdown):
    """Markdown of the dialect that models write; its links are not opened."""

    BLOCKS = BLOCKS

    def __init__(self) -> None:
        super().__init__(classes="answer", open_links=False, parser_factory=markdown_parser)
        self._text = ""
        self._parts: list[Part] = []  # on screen

    @property
    def source(self) -> str:
        """The shown text."""
        return self._text

    def update(self, markdown: str) -> AwaitComplete:
        """Show another text; leading blocks that are already there stay, or grow."""
        return AwaitComplete(self._update(markdown))

    async def _update(self, markdown: str) -> None:
        async with self.lock:
            await self._show(markdown, 0)

    def append(self, markdown: str) -> AwaitComplete:
        """Show more text; the last block is parsed again from its beginning.

        Textual parses from the last line, which breaks fences, lists and paragraphs of several lines.
        """
        return AwaitComplete(self._append(markdown))

    async def _append(self, markdown: str) -> None:
        async with self.lock:
            await self._show(self._text + markdown, self._parts[-1].line if self._parts else 0)

    async def _show(self, text: str, line: int) -> None:
        """Show a text, which is as before up to that line."""
        grows, self._text = text.startswith(self._text), text
        wanted = [each for each in self._parts if each.line < line] + list(parts_of(text, line))
        n_same = n_equal(self._parts, wanted)
        shown, new = self._parts[n_same:], wanted[n_same:]
        for part in new:
            part.block = parsed(self, part.tokens)[0]
            part.block.set_class(part.is_more, MORE)
        if new and not n_same:
            new[0].block.add_class(FIRST)
        with self.app.batch_update():
            n_grown = int(bool(grows and shown and new) and await shown[0].become(new[0]))
            for part in new[:n_grown]:
                part.block = shown[0].block
            await self.remove_children([each.block for each in shown[n_grown:]])
            await self.mount_all([each.block for each in new[n_grown:]])
        self._parts[n_same:] = new

    def scroll_code(self, direction: int) -> None:
        """Scroll wide code to the right, or to the left for -1."""
        for fence in self.query(MarkdownFence):
            fence.scroll_relative(x=direction * STEP, animate=False)


def n_equal(some: Sequence[Part], others: Sequence[Part]) -> int:
    """Return the number of equal leading parts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))
