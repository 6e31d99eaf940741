"""A reply's Markdown on screen: lines keep their indentation, columns of tables their alignment, wide code scrolls.

Knows Textual's blocks of Markdown; knows no message.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal

from markdown_it.token import Token
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Markdown
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownFence,
    MarkdownTable,
    MarkdownTableContent,
    MarkdownTH,
)

from app.tui.markdown_dialect import INDENTS, markdown_parser
from app.tui.widgets.growing_blocks import GrowingBulletList, GrowingFence, GrowingOrderedList, GrowingParagraph

Alignment = Literal["left", "center", "right"]

ALIGNMENTS: dict[str, Alignment] = {"text-align:center": "center", "text-align:right": "right"}
BESIDE = 3  # columns beside a cell's text: space on both sides, and a line
STEP = 8  # columns that code scrolls at a time


class IndentedParagraph(GrowingParagraph):
    """A paragraph whose lines begin where the model began them."""

    def _token_to_content(self, token: Token) -> Content:
        content, indents = super()._token_to_content(token), token.meta.get(INDENTS, [])
        lines = content.split("\n")
        if not any(indents) or len(lines) != len(indents):
            return content
        return Content("\n").join(Content(" " * n) + line for n, line in zip(indents, lines, strict=True))


class AlignedCells(MarkdownTableContent):
    """The cells of a table, each as its column is aligned, no wider than they need."""

    def __init__(self, headers: list[Content], rows: list[list[Content]], alignments: list[Alignment]) -> None:
        super().__init__(headers, rows)
        self._alignments = alignments

    def on_mount(self) -> None:
        """Arranges what is there at once."""
        super().on_mount()
        self._arrange(self.rows)

    async def _update_rows(self, updated_rows: list[list[Content]]) -> None:
        await super()._update_rows(updated_rows)
        self._arrange(self.rows + updated_rows)

    def _arrange(self, rows: list[list[Content]]) -> None:
        self.rows = rows
        columns = zip_longest(self.headers, *rows, fillvalue=Content(""))
        self.styles.width = 1 + sum(BESIDE + max(cell.cell_length for cell in cells) for cells in columns)
        for i, cell in enumerate(self.children):
            cell.styles.text_align = self._alignments[i % len(self._alignments)]


class AlignedTable(MarkdownTable):
    """A table that heeds the colons of its second line."""

    def compose(self) -> ComposeResult:
        """Its cells."""
        self._headers, self._rows = self._get_headers_and_rows()
        yield AlignedCells(self._headers, self._rows, [alignment(each) for each in heads(self)])


def heads(block: MarkdownBlock) -> list[MarkdownTH]:
    """The cells of a table's first line."""
    return [each for row in block._blocks[0]._blocks for each in row._blocks if isinstance(each, MarkdownTH)]


def alignment(cell: MarkdownTH) -> Alignment:
    """As the parser says it of a cell."""
    return ALIGNMENTS.get(str(cell._token.attrs.get("style")), "left")


class ReplyMarkdown(Markdown):
    """Markdown of the dialect that models write; its links are not opened."""

    BLOCKS = Markdown.BLOCKS | {
        "paragraph_open": IndentedParagraph,
        "bullet_list_open": GrowingBulletList,
        "ordered_list_open": GrowingOrderedList,
        "fence": GrowingFence,
        "code_block": GrowingFence,
        "table_open": AlignedTable,
    }

    def __init__(self) -> None:
        super().__init__(classes="answer", open_links=False, parser_factory=markdown_parser)

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)  # as that of a paragraph

    def update(self, markdown: str) -> AwaitComplete:
        """Shows another text. What is appended to it is parsed from the beginning of its last block: Textual parses it
        from the last line, which takes fences, lists and paragraphs of several lines apart.
        """
        shown = super().update(markdown)

        async def updated() -> None:
            await shown
            blocks = [each for each in self.children if isinstance(each, MarkdownBlock)]
            self._last_parsed_line = blocks[-1].source_range[0] if blocks else 0

        return AwaitComplete(updated())

    def scroll_code(self, direction: int) -> None:
        """Scrolls wide code to the right, or to the left for -1."""
        for fence in self.query(MarkdownFence):
            fence.scroll_relative(x=direction * STEP, animate=False)
