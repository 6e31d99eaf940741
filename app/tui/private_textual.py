"""What the chat uses of Textual that Textual promises nobody, each behind a name of ours.

Written for WRITTEN_FOR; tests/test_private_interfaces.py says what no longer holds. What the chat would do without:

- `growing` parts: lay the screen out anew for every word of a reply.
- blocks of Markdown: a Markdown of Textual's own is right, but paragraphs lose their indentation, columns of tables
  their alignment, and every word makes the last block anew.
- `stays_at_end`: `is_anchored` alone, which stays true after one has scrolled up.
- `notifications`, `forget`: sentences pile up until their time is over.
- `bound`: keys would overtake one another in a burst.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

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
    "MarkdownBlock", "MarkdownBlockQuote", "MarkdownBullet", "MarkdownBulletList", "MarkdownFence", "MarkdownListItem",
    "MarkdownOrderedListItem", "MarkdownParagraph", "MarkdownTH", "MarkdownTable", "ReadParagraph", "RowedCells",
    "RowedTable", "blocks_of", "bound", "content_of", "forget", "growing", "keep_content", "notifications", "parsed",
    "set_to", "stays_at_end", "token_of",
]  # fmt: skip

WRITTEN_FOR = "textual 8.2.8"
W = TypeVar("W", bound=Widget)


def growing(kind: type[W]) -> type[W]:
    """Return the widget without scrollbars, from now on with no layout for a new size: it comes of one, in which all
    that depends on the size was laid out.
    """

    def size_updated(self: Widget, size: Size, virtual: Size, container: Size, layout: bool = True) -> bool:
        return Widget._size_updated(self, size, virtual, container, layout=False)

    kind._size_updated = size_updated  # type: ignore[method-assign, assignment]
    return kind


def blocks_of(block: MarkdownBlock) -> list[MarkdownBlock]:
    """Return the blocks in a block that is not on screen yet: the list itself."""
    return block._blocks


def token_of(block: MarkdownBlock) -> Token:
    """Return the token that began a block."""
    return block._token


def content_of(block: MarkdownBlock) -> Content:
    """Return the text of a paragraph, a cell or code."""
    return block._content


def keep_content(block: MarkdownBlock, content: Content) -> None:
    """Has that text from now on; does not show it."""
    block._content = content


async def set_to(block: MarkdownBlock, other: MarkdownBlock) -> None:
    """Has what another block of its kind has, which is not on screen, where it stands."""
    await block._update_from_block(other)


def parsed(markdown: Markdown, tokens: Iterable[Token]) -> list[MarkdownBlock]:
    """Return the blocks of these tokens, which are to be mounted in `markdown`."""
    return list(markdown._parse_markdown(tokens))


class ReadParagraph(MarkdownParagraph):
    """A paragraph whose text a subclass may change."""

    def read(self, token: Token, content: Content) -> Content:
        """Return what to show for a token, of which Textual makes `content`."""
        return content

    def _token_to_content(self, token: Token) -> Content:
        return self.read(token, super()._token_to_content(token))


class RowedCells(MarkdownTableContent):
    """The cells of a table that tells a subclass of its rows."""

    def show_rows(self, rows: list[list[Content]]) -> None:
        """All rows are these, and on screen."""

    def on_mount(self) -> None:
        """Arranges what is there at once."""
        super().on_mount()
        self.show_rows(self.rows)

    async def _update_rows(self, updated_rows: list[list[Content]]) -> None:
        await super()._update_rows(updated_rows)
        self.show_rows(self.rows[:-1] + updated_rows)  # the last one was made anew


class RowedTable(MarkdownTable):
    """A table whose cells a subclass makes."""

    def cells(self, headers: list[Content], rows: list[list[Content]]) -> RowedCells:
        """Return the widget that shows them."""
        return RowedCells(headers, rows)

    def compose(self) -> ComposeResult:
        """Its cells."""
        self._headers, self._rows = self._get_headers_and_rows()
        yield self.cells(self._headers, self._rows)


def stays_at_end(widget: Widget) -> bool:
    """Return whether a widget is anchored and was not scrolled away since."""
    return widget.is_anchored and not widget._anchor_released


def bound(widget: Widget, key: str) -> Sequence[Binding]:
    """Return what a key is bound to in a widget itself."""
    return widget._bindings.key_to_bindings.get(key, ())


def notifications(app: App[Any]) -> list[Notification]:
    """Return what is shown, the oldest first."""
    return list(app._notifications)


def forget(app: App[Any], notification: Notification) -> None:
    """Takes one away when the next is shown."""
    app._unnotify(notification, refresh=False)
