"""Blocks of a reply's Markdown that grow where they stand: only the end of a list, a paragraph or code is made anew,
and the screen is laid out again only where a block changes its size. So a key is not kept waiting by a reply.

Knows Textual's blocks of Markdown and how they are composed; knows no message.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Label, Static
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBullet,
    MarkdownBulletList,
    MarkdownFence,
    MarkdownList,
    MarkdownListItem,
    MarkdownOrderedList,
    MarkdownParagraph,
)


def show_in(part: Static, content: Content) -> None:
    """Shows other text there; what is around it is laid out again only if it takes more room, or less."""
    part.update(content, layout=False)
    room = part.content_size
    if part.get_content_height(room, room, room.width) != room.height:
        part.refresh(layout=True)


class GrowingParagraph(MarkdownParagraph):
    """A paragraph that grows."""

    def set_content(self, content: Content) -> None:
        """Shows that text."""
        self._content = content
        show_in(self, content)

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        # Nothing else of the layout depends on it: there are no scrollbars
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class GrowingFence(MarkdownFence):
    """Code that grows."""

    def set_content(self, content: Content) -> None:
        """Shows that text."""
        before, self._content = self._content, content
        for label in self.query(Label):
            label.update(content, layout=extent(before) != extent(content))


def extent(content: Content) -> tuple[int, int]:
    """Columns of the longest line, and lines."""
    lines = content.split("\n")
    return max((each.cell_length for each in lines), default=0), len(lines)


class GrowingBulletList(MarkdownBulletList):
    """A list whose last item grows, and that gets more of them."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        await grow(self, block)


class GrowingOrderedList(MarkdownOrderedList):
    """The same, with numbers."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        await grow(self, block)


def may_grow(shown: Widget, block: MarkdownBlock, n_done: int = 0) -> bool:
    """Is the block, without so many items, the list on screen from its last item on?"""
    items, wanted = shown_items(shown), wanted_items(block)[n_done:]
    if type(block) is not type(shown) or not items or not wanted:
        return False
    parts, more = items[-1].children, wanted[0]._blocks
    return len(parts) <= len(more) and (not parts or may_continue(parts[-1], more[len(parts) - 1]))


def may_continue(part: Widget, block: MarkdownBlock) -> bool:
    """May a part of an item become that block where it stands?"""
    if isinstance(part, MarkdownList):
        return may_grow(part, block, n_before_last(part))
    return isinstance(part, GrowingParagraph | GrowingFence) and type(part) is type(block)


async def grow(shown: MarkdownBlock, block: MarkdownBlock, n_done: int = 0) -> None:
    """Adds to a list on screen what the block has more. Only where it may grow."""
    last, wanted = shown_items(shown)[-1], wanted_items(block)[n_done:]
    parts, more = list(last.children), wanted[0]._blocks
    if parts:
        await go_on(parts[-1], more[len(parts) - 1])
    await last.mount_all(more[len(parts) :])
    if len(wanted) > 1:
        await add_items(shown, block, wanted[1:])


async def go_on(part: Widget, block: MarkdownBlock) -> None:
    """Has a part of an item become that block."""
    if isinstance(part, MarkdownList):
        await grow(part, block, n_before_last(part))
    elif isinstance(part, MarkdownBlock):
        await part._update_from_block(block)


async def add_items(shown: MarkdownBlock, block: MarkdownBlock, items: Sequence[MarkdownListItem]) -> None:
    """Puts these at the end of a list on screen. Numbers go on."""
    if isinstance(block, MarkdownOrderedList):
        items[0].bullet = str(number(bullets(shown)[-1]) + 1)
    block._blocks = [*items]
    await shown.mount_all(block.compose())
    if isinstance(block, MarkdownOrderedList):
        align(bullets(shown))


def align(numbers: Sequence[MarkdownBullet]) -> None:
    """Has numbers end below one another."""
    width = max(len(each.symbol) for each in numbers)
    for each in numbers:
        if len(each.symbol) != width:
            each.symbol = each.symbol.rjust(width)
            each.refresh(layout=True)


def bullets(shown: Widget) -> list[MarkdownBullet]:
    """What stands before the items of a list on screen."""
    return [each for row in shown.children for each in row.query_children(MarkdownBullet)]


def number(bullet: MarkdownBullet) -> int:
    """Of an item."""
    return int(bullet.symbol.strip(" ."))


def n_before_last(shown: Widget) -> int:
    """How many items of a list on screen do not grow any more."""
    return len(shown_items(shown)) - 1


def outline(block: Widget) -> tuple[object, ...]:
    """What there is to see of a block, on screen or not, down to the parts of its items. Blocks that do not grow are
    made anew with every change, and are told by where they stand in the source.
    """
    if isinstance(block, MarkdownList):
        items = shown_items(block) if block.is_attached else wanted_items(block)
        return type(block), *(tuple(outline(part) for part in parts_of(item)) for item in items)
    if isinstance(block, MarkdownFence):
        return type(block), block.code, block.lexer
    if isinstance(block, MarkdownParagraph):
        return type(block), block._content
    return (type(block),)


def parts_of(item: Widget) -> Sequence[Widget]:
    """What an item of a list consists of."""
    return item._blocks if isinstance(item, MarkdownListItem) else item.children


def shown_items(shown: Widget) -> list[Vertical]:
    """What the items of a list on screen consist of."""
    return [each for row in shown.children if isinstance(row, Horizontal) for each in row.query_children(Vertical)]


def wanted_items(block: MarkdownBlock) -> list[MarkdownListItem]:
    """The items of a list that is not on screen."""
    return [each for each in block._blocks if isinstance(each, MarkdownListItem)]
