"""A reply's Markdown on screen. Lines keep their indentation, table columns their alignment.

While a reply grows, only its last block, or the last item of a list, changes: in place if it has the same blocks inside
as before, and the screen is laid out again only if their size changes. So a reply does not delay key presses. Knows
Textual's Markdown; knows no message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from markdown_it.token import Token
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Markdown

from app.tui.markdown_dialect import INDENTS, markdown_parser
from app.tui.pace import show_in
from app.tui.private_textual import (
    AlignedTable,
    MarkdownBlock,
    MarkdownBlockQuote,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownListItem,
    MarkdownOrderedListItem,
    ReadParagraph,
    blocks_of,
    content_of,
    growing,
    keep_content,
    parsed,
    set_to,
)

FIRST = "-first"  # class of the first block: with :first-child Textual restyles all blocks for each new one
MORE = "-more"  # class of a list's later items
STEP = 8  # columns that code scrolls at a time
LISTS = ("bullet_list_open", "ordered_list_open")
WITH_TEXT = ("inline", "fence", "code_block")  # tokens that a block shows


@growing
class IndentedParagraph(ReadParagraph):
    """A paragraph that grows, and whose lines keep the model's indentation."""

    def read(self, token: Token, content: Content) -> Content:
        """Return the content, indented."""
        indents = token.meta.get(INDENTS, [])
        lines = content.split("\n")
        if not any(indents) or len(lines) != len(indents):
            return content
        return Content("\n").join(Content(" " * n) + line for n, line in zip(indents, lines, strict=True))

    def set_content(self, content: Content) -> None:
        """Show that text."""
        keep_content(self, content)
        show_in(self, content)


class GrowingFence(MarkdownFence):
    """Code that grows."""

    def set_content(self, content: Content) -> None:
        """Show that text."""
        before = content_of(self)
        keep_content(self, content)
        for label in self.query(Label):
            label.update(content, layout=extent(before) != extent(content))


def extent(content: Content) -> tuple[int, int]:
    """Return the columns of the longest line, and the number of lines."""
    lines = content.split("\n")
    return max((each.cell_length for each in lines), default=0), len(lines)


class Quote(MarkdownBlockQuote):
    """A quote without a gap at its beginning."""

    def compose(self) -> ComposeResult:
        """Yield the blocks."""
        for block in blocks_of(self)[:1]:
            block.add_class(FIRST)
        yield from super().compose()


@growing
class ItemRow(Horizontal):
    """A bullet or a number, with the blocks of the item to the right of it."""


@growing
class ItemParts(Vertical):
    """The blocks of an item."""


@growing
class ItemList(MarkdownBulletList):
    """Items with bullets or numbers."""

    def compose(self) -> ComposeResult:
        """Yield a row for each item."""
        for item in blocks_of(self):
            if isinstance(item, MarkdownListItem):
                bullet = MarkdownBullet()
                bullet.symbol = f" {item.bullet}. " if isinstance(item, MarkdownOrderedListItem) else item.bullet
                yield ItemRow(bullet, ItemParts(*blocks_of(item)))
        blocks_of(self).clear()


BLOCKS = Markdown.BLOCKS | {
    "paragraph_open": IndentedParagraph,
    "bullet_list_open": ItemList,
    "ordered_list_open": ItemList,
    "blockquote_open": Quote,
    "fence": GrowingFence,
    "code_block": GrowingFence,
    "table_open": AlignedTable,
}


def growing_in(block: Widget) -> list[MarkdownBlock]:
    """Return the blocks inside whose text can grow, from top to bottom, on screen or not."""
    if isinstance(block, IndentedParagraph | GrowingFence):
        return [block]
    inside = [*block.children, *(blocks_of(block) if isinstance(block, MarkdownBlock) else ())]
    return [found for each in inside for found in growing_in(each)]


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
        if self.is_more != other.is_more:
            return False
        if isinstance(self.block, AlignedTable) and isinstance(other.block, AlignedTable):
            return await self.block.grow(other.block)
        old, new = growing_in(self.block), growing_in(other.block)
        n_texts = sum(each.type in WITH_TEXT for each in self.tokens)
        if self.kinds != other.kinds or not old or len(old) != n_texts:
            return False
        for each, grown in zip(old, new, strict=True):
            await set_to(each, grown)
        return True


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
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._parts, wanted, strict=False)))
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
