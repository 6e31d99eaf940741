"""The blocks of a reply's Markdown: lines keep their indentation, table columns their alignment, and text and code grow
in place, so that the screen is laid out again only if their size changes.

Knows Textual's Markdown blocks; knows no message.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal

from markdown_it.token import Token
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Markdown, Static

from app.tui.markdown_dialect import INDENTS
from app.tui.private_textual import (
    MarkdownBlock,
    MarkdownBlockQuote,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownListItem,
    MarkdownOrderedListItem,
    MarkdownTH,
    ReadParagraph,
    RowedCells,
    RowedTable,
    blocks_of,
    content_of,
    growing,
    keep_content,
    set_to,
    token_of,
)

Alignment = Literal["left", "center", "right"]

ALIGNMENTS: dict[str, Alignment] = {"text-align:center": "center", "text-align:right": "right"}
CELL_PADDING = 3  # columns around a cell's text: a space on both sides, and a line
FIRST = "-first"  # class of the first block: with :first-child Textual restyles all blocks for each new one


def show_in(part: Static, content: Content) -> None:
    """Show other text in a widget; lay out its surroundings again only if its height changes."""
    part.update(content, layout=False)
    room = part.content_size
    if part.get_content_height(room, room, room.width) != room.height:
        part.refresh(layout=True)


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


class AlignedCells(RowedCells):
    """The cells of a table, aligned by column and no wider than their text."""

    def __init__(self, headers: list[Content], rows: list[list[Content]], alignments: list[Alignment]) -> None:
        super().__init__(headers, rows)
        self._alignments = alignments

    def show_rows(self, rows: list[list[Content]]) -> None:
        """Store the rows and align their cells."""
        self.rows = rows
        columns = zip_longest(self.headers, *rows, fillvalue=Content(""))
        self.styles.width = 1 + sum(CELL_PADDING + max(cell.cell_length for cell in cells) for cells in columns)
        for i, cell in enumerate(self.children):
            cell.styles.text_align = self._alignments[i % len(self._alignments)]


class AlignedTable(RowedTable):
    """A table that respects the alignment colons of its second line."""

    def cells(self, headers: list[Content], rows: list[list[Content]]) -> AlignedCells:
        """Return the widget for the cells."""
        heads = [each for row in blocks_of(blocks_of(self)[0]) for each in blocks_of(row)]
        return AlignedCells(headers, rows, [alignment(each) for each in heads if isinstance(each, MarkdownTH)])


def alignment(cell: MarkdownTH) -> Alignment:
    """Return the alignment that the parser found for a cell."""
    return ALIGNMENTS.get(str(token_of(cell).attrs.get("style")), "left")


BLOCKS = Markdown.BLOCKS | {
    "paragraph_open": IndentedParagraph,
    "bullet_list_open": ItemList,
    "ordered_list_open": ItemList,
    "blockquote_open": Quote,
    "fence": GrowingFence,
    "code_block": GrowingFence,
    "table_open": AlignedTable,
}


async def grow(block: MarkdownBlock, other: MarkdownBlock, n_texts: int) -> bool:
    """Let a block on screen become another one of the same kinds of blocks, with `n_texts` texts, in place; return
    whether that is possible.
    """
    if isinstance(block, AlignedTable):
        has_rows = any(each.rows for each in block.query(AlignedCells))
        if has_rows:
            await set_to(block, other)
        return has_rows
    old, new = growing_in(block), growing_in(other)
    if not old or len(old) != n_texts:
        return False
    for each, grown in zip(old, new, strict=True):
        await set_to(each, grown)
    return True


def growing_in(block: Widget) -> list[MarkdownBlock]:
    """Return the blocks inside whose text can grow, from top to bottom, on screen or not."""
    if isinstance(block, IndentedParagraph | GrowingFence):
        return [block]
    inside = [*block.children, *(blocks_of(block) if isinstance(block, MarkdownBlock) else ())]
    return [found for each in inside for found in growing_in(each)]
