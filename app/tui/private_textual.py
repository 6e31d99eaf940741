"""Private interfaces of Textual that the chat uses, each behind a function or class of this module.

Written for WRITTEN_FOR; tests/repository/test_private_interfaces.py reports those that have changed. Without them:

- `growing` parts: the screen would be laid out again for every word of a reply.
- blocks of Markdown: Textual's own Markdown is right, but paragraphs lose their indentation, table columns their
  alignment, and every word rebuilds the last block.
- `stays_at_end`: `is_anchored` alone stays true after the person has scrolled up.
- `notifications`, `forget`: notifications would pile up until they time out.
- `bound`: keys would overtake one another in a burst.
- `run_reported`: an error in `on_unmount` would hide the error that closes the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from markdown_it.token import Token
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.notifications import Notification
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBlockQuote,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownListItem,
    MarkdownOrderedListItem,
    MarkdownParagraph,
    MarkdownTable,
    MarkdownTableContent,
    MarkdownTH,
)

__all__ = [
    "AlignedCells", "AlignedTable", "MarkdownBlock", "MarkdownBlockQuote", "MarkdownBullet", "MarkdownBulletList",
    "MarkdownFence", "MarkdownListItem", "MarkdownOrderedListItem", "MarkdownParagraph", "ReadParagraph", "blocks_of",
    "bound", "content_of", "forget", "growing", "keep_content", "notifications", "parsed", "run_reported", "set_to",
    "stays_at_end",
]  # fmt: skip

Alignment = Literal["left", "center", "right"]

WRITTEN_FOR = "textual 8.2.8"
ALIGNMENTS: dict[str, Alignment] = {"text-align:center": "center", "text-align:right": "right"}
CELL_PADDING = 3  # columns around a cell's text: a space on both sides, and a line
W = TypeVar("W", bound=Widget)


def run_reported(app: App[object], function: Callable[[], object]) -> None:
    """Call a function and report its error as one of the app, which closes and prints the first of its errors."""
    try:
        function()
    except Exception as error:
        app._handle_exception(error)


def growing(kind: type[W]) -> type[W]:
    """Return the widget class, changed to skip the layout after a resize. For widgets without scrollbars: their size
    results from a layout of all their contents.
    """

    def size_updated(self: Widget, size: Size, virtual: Size, container: Size, layout: bool = True) -> bool:
        return Widget._size_updated(self, size, virtual, container, layout=False)

    kind._size_updated = size_updated  # type: ignore[method-assign, assignment]
    return kind


def blocks_of(block: MarkdownBlock) -> list[MarkdownBlock]:
    """Return the child blocks of a block that is not on screen yet. The list is not a copy."""
    return block._blocks


def content_of(block: MarkdownBlock) -> Content:
    """Return the text of a paragraph, a cell or code."""
    return block._content


def keep_content(block: MarkdownBlock, content: Content) -> None:
    """Store the text of a block without showing it."""
    block._content = content


async def set_to(block: MarkdownBlock, other: MarkdownBlock) -> None:
    """Replace the content of a block in place with that of another block of its kind, which is not on screen."""
    await block._update_from_block(other)


def parsed(markdown: Markdown, tokens: Iterable[Token]) -> list[MarkdownBlock]:
    """Return the blocks of these tokens, to be mounted in `markdown`."""
    return list(markdown._parse_markdown(tokens))


class ReadParagraph(MarkdownParagraph):
    """A paragraph whose text a subclass may change."""

    def read(self, token: Token, content: Content) -> Content:
        """Return the content to show for a token; `content` is Textual's."""
        return content

    def _token_to_content(self, token: Token) -> Content:
        return self.read(token, super()._token_to_content(token))


class AlignedCells(MarkdownTableContent):
    """The cells of a table, aligned by column and no wider than their text."""

    def __init__(self, headers: list[Content], rows: list[list[Content]], alignments: list[Alignment]) -> None:
        super().__init__(headers, rows)
        self._alignments = alignments

    def on_mount(self) -> None:
        """Arrange the initial rows."""
        super().on_mount()
        self._show_rows(self.rows)

    async def _update_rows(self, updated_rows: list[list[Content]]) -> None:
        await super()._update_rows(updated_rows)
        self._show_rows(self.rows[:-1] + updated_rows)  # the last row was rebuilt

    def _show_rows(self, rows: list[list[Content]]) -> None:
        """Store all rows, which are on screen, and align their cells."""
        self.rows = rows
        columns = zip_longest(self.headers, *rows, fillvalue=Content(""))
        self.styles.width = 1 + sum(CELL_PADDING + max(cell.cell_length for cell in cells) for cells in columns)
        for i, cell in enumerate(self.children):
            cell.styles.text_align = self._alignments[i % len(self._alignments)]


class AlignedTable(MarkdownTable):
    """A table that respects the alignment colons of its second line."""

    def compose(self) -> ComposeResult:
        """Yield the cells."""
        self._headers, self._rows = self._get_headers_and_rows()
        heads = [each for row in blocks_of(self._blocks[0]) for each in blocks_of(row)]
        alignments = [alignment(each) for each in heads if isinstance(each, MarkdownTH)]
        yield AlignedCells(self._headers, self._rows, alignments)

    async def grow(self, other: AlignedTable) -> bool:
        """Show another table in place, which is not on screen; return whether that is possible: once there are rows."""
        has_rows = any(each.rows for each in self.query(AlignedCells))
        if has_rows:
            await self._update_from_block(other)
        return has_rows


def alignment(cell: MarkdownTH) -> Alignment:
    """Return the alignment that the parser found for a cell."""
    return ALIGNMENTS.get(str(cell._token.attrs.get("style")), "left")


def stays_at_end(widget: Widget) -> bool:
    """Return whether a widget is anchored and was not scrolled since."""
    return widget.is_anchored and not widget._anchor_released


def bound(widget: Widget, key: str) -> Sequence[Binding]:
    """Return the bindings of a key in a widget itself."""
    return widget._bindings.key_to_bindings.get(key, ())


def notifications(app: App[Any]) -> list[Notification]:
    """Return the visible notifications, the oldest first."""
    return list(app._notifications)


def forget(app: App[Any], notification: Notification) -> None:
    """Remove a notification; it leaves the screen when the next one is shown."""
    app._unnotify(notification, refresh=False)
