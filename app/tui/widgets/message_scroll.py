"""Scrolling messages: only a part of them is mounted, and more are added when the person scrolls to an end of it.

Knows the list of messages, and gets their widgets from a subclass; generates no replies and reads no chat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Static

from app.chats.store import StoredMessage
from app.tui.private_textual import stays_at_end
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.shown_part import MOST, SHOWN, ShownPart

COMES, HAS_ENDED = "▾ The reply continues below. End shows it.", "▾ The reply has ended below. End shows it."


class MessageScroll(VerticalScroll, can_focus=False):
    """A view for each message of the mounted part. It stays at its end while that grows, unless the person scrolls."""

    @dataclass
    class PartRequested(Message):
        """Another part of the messages is requested: earlier, later, first or last. `show_part` shows it."""

        part: str

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._part = ShownPart()
        self._coming: int | None = None  # the message that grows
        self._is_requested = self._is_changing = False  # a part is requested; a part is being mounted
        self._next = ""  # the end of the chat to show after that
        self._owed = 0.0  # rows left to scroll once they are mounted; negative: up
        self.below = BelowLine()  # mounted below the messages by the screen

    def _view(self, message: StoredMessage) -> Widget:
        """Return the widget for a message."""
        raise NotImplementedError

    def _nothing(self) -> Widget:
        """Return the widget for an empty chat."""
        raise NotImplementedError

    @property
    def scroll_offset(self) -> Offset:
        """The offset, never before the first message: Textual's anchor would put a short chat at the bottom."""
        return Offset(max(0, round(self.scroll_x)), max(0, round(self.scroll_y)))

    async def _put(self, first: int, last: int) -> None:
        """Show that part of the messages and nothing else."""
        views = self._views_of(first, last)
        with self.app.batch_update():
            await self.remove_children()
            self._part.first, self._part.last = first, last
            await self.mount_all(views or [self._nothing()])
            await self._frame()
        self.below.say("")

    async def _trim_top(self) -> None:
        """Remove views at the top beyond the maximal number."""
        views = list(self.query(MessageView))
        if (n := len(views) - MOST) > 0:
            await self.remove_children(views[:n])
            self._part.first += n
        await self._frame()

    async def _frame(self) -> None:
        """Show a button at either end where there are more messages."""
        await self.remove_children(self.query(Button))
        if n := self._part.first:
            await self.mount(more_button(n, "earlier"), before=0)
        if n := self._part.n_after:
            await self.mount(more_button(n, "later"))

    @on(Button.Pressed)
    def _request_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self._request(event.button.id or "")

    def _request(self, part: str) -> None:
        if not self._is_requested:
            self._is_requested = True
            self.post_message(self.PartRequested(part))

    def go_to(self, end: str) -> None:
        """Scroll to the first message of the chat, or to the last one."""
        self._owed = 0.0
        if self._is_requested:
            self._next = end
        self._request(end)

    async def show_part(self, part: str) -> None:
        """Show the requested part."""
        shows = {"first": self._show_first, "last": self._show_last, "earlier": self._show_earlier}
        self._is_changing = True
        try:
            await shows.get(part, self._show_later)()
        finally:
            self.call_after_refresh(self._settle_part)

    def _settle_part(self) -> None:
        self._is_requested = self._is_changing = False
        if self._next:
            self._next, end = "", self._next
            self._request(end)
        else:
            self._scroll_owed()
        self._tell()

    async def _show_first(self) -> None:
        self.release_anchor()
        if self._part.first:
            await self._put(0, min(SHOWN, self._part.n))
            self.release_anchor()
        self.scroll_home(animate=False)

    async def _show_last(self) -> None:
        if not self._part.is_last:
            await self._put(*self._part.around())
        self.anchor()

    async def _show_earlier(self) -> None:
        """Add more messages at the top, and remove views far below."""
        part, views = self._part, list(self.query(MessageView))
        top, first = views[0], part.first
        hold = self._holding(top)
        part.first = max(0, first - SHOWN)
        self.release_anchor()
        with self.app.batch_update():
            await self.mount_all(self._views_of(part.first, first), before=top)
            far = views[max(0, MOST - (first - part.first)) :]
            await self.remove_children(far)
            part.last -= len(far)
            await self._frame()
        self.call_after_refresh(hold)

    async def _show_later(self) -> None:
        """Add more messages at the bottom, and remove views far above."""
        part, last = self._part, self._part.last
        if part.is_last:
            return
        hold = self._holding(self.query(MessageView).last())
        part.last = min(part.n, last + SHOWN)
        with self.app.batch_update():
            await self.mount_all(self._views_of(last, part.last))
            await self._trim_top()
        self.call_after_refresh(hold)

    def _holding(self, view: MessageView) -> Callable[[], None]:
        """Return a function that keeps a message at its current row after others were laid out around it."""
        row = view.virtual_region.y - self.scroll_y
        return lambda: self.scroll_to(y=view.virtual_region.y - row, animate=False, immediate=True)

    def scroll_pages(self, pages: int) -> None:
        """Scroll screenfuls down, or up if negative. While more messages are being mounted, the rows are added up for
        later.
        """
        self._owed += pages * self.scrollable_content_region.height
        if not self._is_requested:
            self._scroll_owed()

    def _scroll_owed(self) -> None:
        """Scroll as far as messages are mounted; the rest waits for more messages."""
        if not self._owed:
            return
        wanted = self.scroll_y + self._owed
        there = min(max(wanted, 0), self.max_scroll_y)
        self._owed = 0.0
        self.scroll_to(y=there, animate=False, immediate=True)
        if wanted < there and self._part.first:
            self._owed = wanted - there
            self._request("earlier")
        elif wanted > there and not self._part.is_last:
            self._owed = wanted - there
            self._request("later")

    def action_scroll_home(self) -> None:
        """Scroll to the first message of the chat."""
        self.go_to("first")

    def action_scroll_end(self) -> None:
        """Scroll to the last message of the chat."""
        self.go_to("last")

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Request more messages near either end of the mounted part."""
        super().watch_scroll_y(old_value, new_value)
        if self._is_changing:
            return
        if new_value < old_value and new_value <= self.size.height and self._part.first:
            self._request("earlier")
        elif new_value > old_value and self._is_at_end and not self._part.is_last:
            self._request("later")
        self._tell()

    @property
    def _is_at_end(self) -> bool:
        return stays_at_end(self) or self.scroll_y >= self.max_scroll_y - 1

    def _tell(self, has_ended: bool = False) -> None:
        """Report on the reply in the line below while the person has scrolled up."""
        if self._is_at_end and self._part.is_last:
            self.below.say("")
        elif self._coming is not None:
            self.below.say(COMES)
        elif has_ended:
            self.below.say(HAS_ENDED)

    def _views_of(self, first: int, last: int) -> list[Widget]:
        return [self._view(each) for each in self._part.messages[first:last]]


def more_button(hidden: int, which: str) -> Button:
    """Return a button for messages that are not mounted yet."""
    return Button(Content(f"Show {min(hidden, SHOWN)} of {hidden} {which} messages"), id=which, compact=True)


class BelowLine(Static):
    """A line that is only visible while it has text."""

    def __init__(self) -> None:
        super().__init__(id="below", markup=False)
        self._text = ""

    def say(self, text: str) -> None:
        """Show that text from now on; "" hides the line."""
        if text != self._text:
            self._text = text
            self.update(text)
            self.display = bool(text)
