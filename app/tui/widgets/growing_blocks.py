"""Markdown blocks of a reply that grow in place: only the end of a list, a paragraph or code is rebuilt, and the screen
is laid out again only if a block changes its size. So a reply does not delay key presses.

Knows Textual's Markdown blocks and their composition; knows no message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Label, Static

from app.tui.private_textual import (
    MarkdownBlock,
    MarkdownBlockQuote,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownListItem,
    MarkdownOrderedListItem,
    MarkdownParagraph,
    ReadParagraph,
    blocks_of,
    content_of,
    growing,
    keep_content,
    set_to,
    token_of,
)

FIRST = "-first"  # class of the first block: with :first-child Textual restyles all blocks for each new one


def show_in(part: Static, content: Content) -> None:
    """Show other text in a widget; lay out its surroundings again only if its height changes."""
    part.update(content, layout=False)
    room = part.content_size
    if part.get_content_height(room, room, room.width) != room.height:
        part.refresh(layout=True)


@growing
class GrowingParagraph(ReadParagraph):
    """A paragraph that grows."""

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
class GrowingList(MarkdownBulletList):
    """A list with bullets or numbers whose last item grows, and that can get more items."""

    @property
    def items(self) -> list[ItemParts]:
        """The contents of the items on screen."""
        return [each for row in self.children for each in row.query_children(ItemParts)]

    @property
    def bullets(self) -> list[MarkdownBullet]:
        """The bullets or numbers of the items."""
        return [each for row in self.children for each in row.query_children(MarkdownBullet)]

    def compose(self) -> ComposeResult:
        """Yield a row for each item."""
        items = wanted_items(self)
        yield from rows(items, int(items[0].bullet) if is_ordered(self) else 1)
        blocks_of(self).clear()

    def on_mount(self) -> None:
        """Right-align the numbers."""
        if is_ordered(self):
            align(self.bullets)

    def may_become(self, block: MarkdownBlock, n_done: int = 0) -> bool:
        """Return whether the block, without its first `n_done` items, continues this list from its last item on."""
        items, wanted = self.items, wanted_items(block)[n_done:]
        if not isinstance(block, GrowingList) or is_ordered(block) != is_ordered(self) or not items or not wanted:
            return False
        parts, more = items[-1].children, blocks_of(wanted[0])
        return len(parts) <= len(more) and (not parts or may_become(parts[-1], more[len(parts) - 1]))

    async def become(self, block: MarkdownBlock, n_done: int = 0) -> None:
        """Add what the block has in addition. Only to be called if `may_become` returned True."""
        last, wanted = self.items[-1], wanted_items(block)[n_done:]
        parts, more = list(last.children), blocks_of(wanted[0])
        if parts:
            await become(parts[-1], more[len(parts) - 1])
        await last.mount_all(more[len(parts) :])
        if items := wanted[1:]:
            await self.mount_all(rows(items, number(self.bullets[-1]) + 1 if is_ordered(self) else 1))
            self.on_mount()


def may_become(part: Widget, block: MarkdownBlock) -> bool:
    """Return whether a part of an item can become that block in place."""
    if isinstance(part, GrowingList):
        return part.may_become(block, len(part.items) - 1)
    return isinstance(part, GrowingParagraph | GrowingFence) and type(part) is type(block)


async def become(part: Widget, block: MarkdownBlock) -> None:
    """Turn a part of an item into that block."""
    if isinstance(part, GrowingList):
        await part.become(block, len(part.items) - 1)
    elif isinstance(part, MarkdownBlock):
        await set_to(part, block)


def wanted_items(block: MarkdownBlock) -> list[MarkdownListItem]:
    """Return the items of a list that is not on screen."""
    return [each for each in blocks_of(block) if isinstance(each, MarkdownListItem)]


def is_ordered(block: MarkdownBlock) -> bool:
    """Return whether a list has numbers."""
    return token_of(block).type == "ordered_list_open"


def rows(items: Iterable[MarkdownListItem], first: int) -> Iterator[ItemRow]:
    """Yield a row for each item; numbers begin with `first`."""
    for n, item in zip(count(first), items, strict=False):
        bullet = MarkdownBullet()
        bullet.symbol = f" {n}. " if isinstance(item, MarkdownOrderedListItem) else item.bullet
        yield ItemRow(bullet, ItemParts(*blocks_of(item)))


def number(bullet: MarkdownBullet) -> int:
    """Return the number of an item."""
    return int(bullet.symbol.strip(" ."))


def align(numbers: Sequence[MarkdownBullet]) -> None:
    """Right-align the numbers."""
    width = max((len(each.symbol) for each in numbers), default=0)
    for each in numbers:
        if len(each.symbol) != width:
            each.symbol = each.symbol.rjust(width)
            each.refresh(layout=True)


def outline(block: Widget) -> tuple[object, ...]:
    """Return what is visible of a block, on screen or not, down to the parts of its items.

    Blocks that do not grow are rebuilt with every change, and compared by their position in the source.
    """
    if isinstance(block, GrowingList):
        items = [each.children for each in block.items] or [blocks_of(each) for each in wanted_items(block)]
        return type(block), is_ordered(block), *(tuple(outline(part) for part in parts) for parts in items)
    if isinstance(block, MarkdownFence):
        return type(block), block.code, block.lexer
    if isinstance(block, MarkdownParagraph):
        return type(block), content_of(block)
    return (type(block),)
