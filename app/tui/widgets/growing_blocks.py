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
    MarkdownBulletList,
    MarkdownFence,
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
        if may_grow(self, block):
            await grow(self, block)
        else:
            await super()._update_from_block(block)


class GrowingOrderedList(MarkdownOrderedList):
    """The same, with numbers."""

    async def _update_from_block(self, block: MarkdownBlock) -> None:
        if may_grow(self, block):
            await grow(self, block)
        else:
            await super()._update_from_block(block)


def may_grow(shown: Widget, block: MarkdownBlock) -> bool:
    """Is the block a list on screen with more at its end? What comes before its last item is taken to be the same."""
    items, wanted = shown_items(shown), wanted_items(block)
    if type(block) is not type(shown) or not 0 < len(items) <= len(wanted):
        return False
    if isinstance(block, MarkdownOrderedList) and n_digits(wanted, len(items)) != n_digits(wanted, len(wanted)):
        return False
    parts, more = items[-1].children, wanted[len(items) - 1]._blocks
    return len(parts) <= len(more) and (not parts or may_continue(parts[-1], more[len(parts) - 1]))


def may_continue(part: Widget, block: MarkdownBlock) -> bool:
    """May a part of an item become that block where it stands?"""
    if isinstance(part, GrowingParagraph | GrowingFence):
        return type(part) is type(block)
    return may_grow(part, block)


async def grow(shown: MarkdownBlock, block: MarkdownBlock) -> None:
    """Adds to a list on screen what the block has more. Only where it may grow."""
    items, wanted = shown_items(shown), wanted_items(block)
    last, more = items[-1], wanted[len(items) - 1]._blocks
    n_parts = len(last.children)
    for part, changed in zip(last.children[n_parts - 1 :], more[n_parts - 1 : n_parts], strict=False):
        if isinstance(part, MarkdownBlock):
            await part._update_from_block(changed)
    await last.mount_all(more[n_parts:])
    if rest := wanted[len(items) :]:
        if isinstance(block, MarkdownOrderedList):
            rest[0].bullet = str(first_number(wanted) + len(items))
        block._blocks = [*rest]
        await shown.mount_all(block.compose())


def shown_items(shown: Widget) -> list[Vertical]:
    """What the items of a list on screen consist of."""
    return [each for row in shown.children if isinstance(row, Horizontal) for each in row.query_children(Vertical)]


def wanted_items(block: MarkdownBlock) -> list[MarkdownListItem]:
    """The items of a list that is not on screen."""
    return [each for each in block._blocks if isinstance(each, MarkdownListItem)]


def n_digits(items: Sequence[MarkdownListItem], n: int) -> int:
    """Of the number of the n-th item."""
    return len(str(first_number(items) + n - 1))


def first_number(items: Sequence[MarkdownListItem]) -> int:
    """With which a list begins."""
    return int(items[0].bullet)
