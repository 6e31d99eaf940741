"""A reply's Markdown on screen: lines keep their indentation, table columns their alignment, wide code scrolls.

Knows Textual's Markdown blocks; knows no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile, zip_longest
from typing import Literal

from markdown_it.token import Token
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.widgets import Markdown

from app.tui.markdown_dialect import INDENTS, markdown_parser
from app.tui.private_textual import (
    MarkdownBlock,
    MarkdownFence,
    MarkdownTH,
    RowedCells,
    RowedTable,
    blocks_of,
    growing,
    parsed,
    set_to,
    token_of,
)
from app.tui.widgets.growing_blocks import (
    FIRST,
    GrowingFence,
    GrowingList,
    GrowingParagraph,
    Quote,
    outline,
)

Alignment = Literal["left", "center", "right"]

ALIGNMENTS: dict[str, Alignment] = {"text-align:center": "center", "text-align:right": "right"}
CELL_PADDING = 3  # columns around a cell's text: a space on both sides, and a line
STEP = 8  # columns that code scrolls at a time


class IndentedParagraph(GrowingParagraph):
    """A paragraph whose lines keep the model's indentation."""

    def read(self, token: Token, content: Content) -> Content:
        """Return the content, indented."""
        indents = token.meta.get(INDENTS, [])
        lines = content.split("\n")
        if not any(indents) or len(lines) != len(indents):
            return content
        return Content("\n").join(Content(" " * n) + line for n, line in zip(indents, lines, strict=True))


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
        return AlignedCells(headers, rows, [alignment(each) for each in heads(self)])


def may_be_set(block: MarkdownBlock) -> bool:
    """Return whether the block's content can be replaced in place by another block of its kind; a table's only if it
    has rows.
    """
    has_rows = isinstance(block, AlignedTable) and any(cells.rows for cells in block.query(AlignedCells))
    return has_rows or isinstance(block, GrowingParagraph | GrowingFence)


def heads(block: MarkdownBlock) -> list[MarkdownTH]:
    """Return the cells of a table's first line."""
    return [each for row in blocks_of(blocks_of(block)[0]) for each in blocks_of(row) if isinstance(each, MarkdownTH)]


def alignment(cell: MarkdownTH) -> Alignment:
    """Return the alignment that the parser found for a cell."""
    return ALIGNMENTS.get(str(token_of(cell).attrs.get("style")), "left")


def last_begin(tokens: Sequence[Token]) -> int:
    """Return the line where the last block begins or, if it is a list, its last item."""
    begins = [each.map[0] for each in tokens if each.map and begins_block(each)]
    return begins[-1] if begins else 0


def begins_block(token: Token) -> bool:
    """Return whether the token begins a top-level block, or an item of a top-level list."""
    return token.level == 0 or (token.level == 1 and token.type == "list_item_open")


def facts_of(blocks: Sequence[MarkdownBlock], markdown: str) -> Iterator[object]:
    """Return facts to compare each of the blocks of a text with others."""
    lines = markdown.splitlines()
    return ((each.source_range, lines[slice(*each.source_range)], outline(each)) for each in blocks)


def n_equal(some: Iterable[object], others: Iterable[object]) -> int:
    """Return the number of equal leading elements."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False)))


@growing
class ReplyMarkdown(Markdown):
    """Markdown of the dialect that models write; its links are not opened."""

    BLOCKS = Markdown.BLOCKS | {
        "paragraph_open": IndentedParagraph,
        "bullet_list_open": GrowingList,
        "ordered_list_open": GrowingList,
        "blockquote_open": Quote,
        "fence": GrowingFence,
        "code_block": GrowingFence,
        "table_open": AlignedTable,
    }

    def __init__(self) -> None:
        super().__init__(classes="answer", open_links=False, parser_factory=markdown_parser)
        self._text = ""
        self._last_begin = 0  # line where the last block or item begins

    @property
    def source(self) -> str:
        """The shown text."""
        return self._text

    def update(self, markdown: str) -> AwaitComplete:
        """Show another text; leading blocks that are already there stay, or grow."""
        return AwaitComplete(self._settle(markdown))

    async def _settle(self, markdown: str) -> None:
        async with self.lock:
            if self.source and markdown.startswith(self.source):
                await self._grow(markdown.removeprefix(self.source))
            before, self._text = self._text, markdown
            shown, wanted = list(self.query_children(MarkdownBlock)), self._blocks_from(0)
            n_same = n_equal(facts_of(shown, before), facts_of(wanted, markdown))
            with self.app.batch_update():
                await self.remove_children(shown[n_same:])
                await self._add(wanted[n_same:])

    def append(self, markdown: str) -> AwaitComplete:
        """Show more text; the last block is parsed again from its beginning, or from that of its last item.

        Textual parses from the last line, which breaks fences, lists and paragraphs of several lines.
        """
        return AwaitComplete(self._grow(markdown))

    async def _grow(self, markdown: str) -> None:
        async with self.lock:
            shown, begin = list(self.query_children(MarkdownBlock))[-1:], self._last_begin
            self._text += markdown
            more = self._blocks_from(begin)
            with self.app.batch_update():
                if shown and more:
                    more = await self._continue(shown[0], more)
                await self._add(more)

    async def _add(self, blocks: Sequence[MarkdownBlock]) -> None:
        """Mount blocks at the end."""
        if blocks and not self.query_children(MarkdownBlock):
            blocks[0].add_class(FIRST)
        await self.mount_all(blocks)

    async def _continue(self, last: MarkdownBlock, more: list[MarkdownBlock]) -> list[MarkdownBlock]:
        """Turn the last block into the first of these, and return the blocks to mount after it."""
        begin, end = last.source_range[0], more[0].source_range[1]
        if type(last) is type(more[0]) and may_be_set(last):
            await set_to(last, more[0])
        elif isinstance(last, GrowingList) and last.may_become(more[0]):
            await last.become(more[0])
        else:
            await last.remove()
            return self._blocks_from(begin)
        last.source_range = begin, end
        return more[1:]

    def _blocks_from(self, line: int) -> list[MarkdownBlock]:
        """Return the blocks of the text from that line on."""
        tokens = markdown_parser().parse("".join(self.source.splitlines(keepends=True)[line:]))
        self._last_begin = line + last_begin(tokens)
        blocks = parsed(self, tokens)
        for block in blocks:
            begin, end = block.source_range
            block.source_range = line + begin, line + end
        return blocks

    def scroll_code(self, direction: int) -> None:
        """Scroll wide code to the right, or to the left for -1."""
        for fence in self.query(MarkdownFence):
            fence.scroll_relative(x=direction * STEP, animate=False)
