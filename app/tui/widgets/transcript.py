"""The messages of a chat on screen: a part of them, more where one scrolls, and the reply that grows at the end.

Knows the branch that it shows, to read it; makes no replies and changes no chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from textual import on
from textual.containers import VerticalScroll
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button

from app.chats.branch import ChatBranch
from app.chats.store import StoredMessage
from app.tui.numbers import stats_of
from app.tui.pieces import GOES_ON, Piece
from app.tui.widgets.below import COMES, HAS_ENDED, BelowLine
from app.tui.widgets.message_view import MessageView
from app.tui.widgets.offers import Offer, Welcome
from runtime.speculative.control.explain import Pass

SHOWN = 20  # messages of a long chat that are put on screen at once
MOST = 4 * SHOWN  # that are there at the same time
WELCOME = (
    "Ask something. Enter sends, Ctrl+J begins a line, F1 shows every key.\nA / begins a command, an @ attaches a file."
)


class Transcript(VerticalScroll, can_focus=False):
    """A view for each message of a part of a branch. It stays at its end while a reply comes, unless one scrolls."""

    class PartRequested(Message):
        """Another part of the messages is wanted: earlier, later, first or last. `show_part` shows it."""

        def __init__(self, part: str) -> None:
            super().__init__()
            self.part = part

    def __init__(self, branch: ChatBranch, id: str | None = None) -> None:
        super().__init__(id=id)
        self._branch, self._messages = branch, list[StoredMessage]()
        self._first = self._last = 0  # which of them are on screen
        self._coming: int | None = None  # the message that grows
        self._is_requested = self._is_changing = False  # is a part on its way, or being put there?
        self.below = BelowLine()  # to be put there
        self._offers: Sequence[Offer] = ()

    @property
    def scroll_offset(self) -> Offset:
        """Never before the first message: Textual's anchor has a short chat stand at the bottom."""
        return Offset(max(0, round(self.scroll_x)), max(0, round(self.scroll_y)))

    async def show(self, branch: ChatBranch, at: int | None = None) -> None:
        """Shows a branch at its end, or has the focus at a message of it. What it has in common with the one that was
        there stays as it is.
        """
        is_same = branch is self._branch
        before, self._coming = (self._messages, self._coming) if is_same else ([], None)
        self._branch, self._messages = branch, branch.messages()
        pairs = zip(before, self._messages, strict=False)
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
        if n_same and self._first < n_same and self._last == len(before):
            await self._replace_from(n_same)
        else:
            await self._put(*self._part_with(at))
        if at is None:
            self.anchor()
        elif (view := self._find(at)) is not None:
            if self.max_scroll_y > 0:  # a short chat is seen as a whole
                self.release_anchor()
            view.focus()

    def _part_with(self, message: int | None) -> tuple[int, int]:
        """Which messages to show, so that this one is among them; None: the last ones."""
        n = len(self._messages)
        at = next((i for i, each in enumerate(self._messages) if each.id == message), n - 1)
        first = max(0, min(at - SHOWN // 4, n - SHOWN))
        return first, min(n, first + SHOWN)

    async def _put(self, first: int, last: int) -> None:
        """Shows that part of the messages and nothing else."""
        views = self._views_of(first, last)
        with self.app.batch_update():
            await self.remove_children()
            self._first, self._last = first, last
            await self.mount_all(views or [Welcome(WELCOME, self._offers)])
            await self._frame()
        self.below.say("")

    async def offer(self, offers: Sequence[Offer]) -> None:
        """Shows these wherever a chat is empty."""
        self._offers = offers
        if self.query(Welcome):
            await self.show(self._branch)

    async def _replace_from(self, n_same: int) -> None:
        """Shows other messages after the first so many."""
        stay = {each.id for each in self._messages[:n_same]}
        with self.app.batch_update():
            await self.remove_children([view for view in self.query(MessageView) if view.message_id not in stay])
            await self.mount_all(self._views_of(n_same, len(self._messages)))
            self._last = len(self._messages)
            await self._trim_top()
        await self._end_offers()

    async def _trim_top(self) -> None:
        """No more views than there may be."""
        views = list(self.query(MessageView))
        if (n := len(views) - MOST) > 0:
            await self.remove_children(views[:n])
            self._first += n
        await self._frame()

    async def _frame(self) -> None:
        """A button at either end where there are more messages."""
        await self.remove_children(self.query(Button))
        if self._first:
            await self.mount(more_button(self._first, "earlier"), before=0)
        if n := len(self._messages) - self._last:
            await self.mount(more_button(n, "later"))

    @on(Button.Pressed)
    def _request_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self._request(event.button.id or "")

    def _request(self, part: str) -> None:
        if not self._is_requested:
            self._is_requested = True
            self.post_message(self.PartRequested(part))

    async def show_part(self, part: str) -> None:
        """Shows the part that was requested."""
        self._is_changing = True
        n = len(self._messages)
        try:
            if part == "first":
                await self._show_first()
            elif part == "last":
                if self._last < n:
                    await self._put(max(0, n - SHOWN), n)
                self.anchor()
            elif part == "earlier":
                await self._show_earlier()
            else:
                await self._show_later()
        finally:
            self.call_after_refresh(self._settle_part)

    def _settle_part(self) -> None:
        self._is_requested = self._is_changing = False
        self._tell()

    async def _show_first(self) -> None:
        self.release_anchor()
        if self._first:
            await self._put(0, min(SHOWN, len(self._messages)))
            self.release_anchor()
        self.scroll_home(animate=False)

    async def _show_earlier(self) -> None:
        """As many messages more, above those that are there; what is far below goes."""
        top, views, first = self.query(MessageView).first(), list(self.query(MessageView)), self._first
        self._first = max(0, first - SHOWN)
        self.release_anchor()
        with self.app.batch_update():
            await self.mount_all(self._views_of(self._first, first), before=top)
            far = views[max(0, MOST - (first - self._first)) :]
            await self.remove_children(far)
            self._last -= len(far)
            await self._frame()
        self.call_after_refresh(self.scroll_to_widget, top, animate=False, top=True)

    async def _show_later(self) -> None:
        """As many messages more, below those that are there; what is far above goes."""
        last = self._last
        if last == len(self._messages):
            return
        bottom = self.query(MessageView).last()
        self._last = min(len(self._messages), last + SHOWN)
        with self.app.batch_update():
            await self.mount_all(self._views_of(last, self._last))
            await self._trim_top()
        self.call_after_refresh(self.scroll_to_widget, bottom, animate=False)

    def page_up(self) -> None:
        """A screenful up; at the top, earlier messages."""
        if self.scroll_y > 0:
            self.scroll_page_up()
        elif self._first:
            self._request("earlier")

    def action_scroll_home(self) -> None:
        """To the first message of the chat."""
        self._request("first")

    def action_scroll_end(self) -> None:
        """To the last one."""
        self._request("last")

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Whoever scrolls to an end of what is there gets more."""
        super().watch_scroll_y(old_value, new_value)
        if self._is_changing:
            return
        if new_value < old_value and new_value <= 0 and self._first:
            self._request("earlier")
        elif new_value > old_value and self._is_at_end and self._last < len(self._messages):
            self._request("later")
        self._tell()

    @property
    def _is_at_end(self) -> bool:
        is_following = self.is_anchored and not self._anchor_released
        return is_following or self.scroll_y >= self.max_scroll_y - 1

    async def add(self, message: StoredMessage) -> None:
        """Shows a new message at the end."""
        if self._last < len(self._messages):
            n = len(self._messages)
            await self._put(max(0, n - SHOWN), n)
        self._coming = message.id if message.role == "assistant" else None
        self._messages.append(message)
        await self.remove_children("#welcome")
        await self.mount(self._view(message))
        self._last += 1
        self.anchor()

    async def append(self, message_id: int, pieces: Sequence[Piece]) -> None:
        """Shows more of a reply, where it is on screen."""
        self._coming = message_id
        self._tell()
        if (view := self._find(message_id)) is not None:
            await view.append(pieces)
            if self.has_class("-tokens"):
                view.show_tokens()

    async def settle(self, message_id: int, pieces: Sequence[Piece], facts: dict[str, Any]) -> None:
        """Shows a complete reply with its numbers, where it is on screen."""
        was_coming, self._coming = self._coming, None
        self._tell(was_coming is not None)
        if (view := self._find(message_id)) is not None:
            await view.settle(pieces, facts)

    def tell(self, message: StoredMessage) -> None:
        """Shows what else became of a reply, now and wherever it comes on screen."""
        self._messages = [message if each.id == message.id else each for each in self._messages]
        if (view := self._find(message.id)) is not None:
            view.tell(message.facts)

    def _tell(self, has_ended: bool = False) -> None:
        """Says below what the reply does, where one has scrolled up."""
        if self._is_at_end and self._last == len(self._messages):
            self.below.say("")
        elif self._coming is not None:
            self.below.say(COMES)
        elif has_ended:
            self.below.say(HAS_ENDED)

    async def _end_offers(self) -> None:
        """What is offered of the last reply is not offered of those before it."""
        for view in self.views("assistant"):
            end = view.facts.get("end", "")
            if view.message_id != self._messages[-1].id and end.endswith(GOES_ON):
                await view.settle(view.pieces, {**view.facts, "end": end.removesuffix(GOES_ON)})

    def toggle_tokens(self) -> None:
        """Shows replies in the colours of their drafters, or as Markdown again."""
        self.toggle_class("-tokens")
        for view in self.views("assistant"):
            view.show_tokens()

    def views(self, role: str) -> list[MessageView]:
        """The messages of one side that are on screen."""
        return [view for view in self.query(MessageView) if view.role == role]

    def passes(self) -> list[Pass]:
        """Those of the replies on screen, as they were kept."""
        return [each for view in self.views("assistant") for each in stats_of(view.facts).steps]

    def _find(self, message_id: int) -> MessageView | None:
        return next((view for view in self.query(MessageView) if view.message_id == message_id), None)

    def _views_of(self, first: int, last: int) -> list[Widget]:
        return [self._view(each) for each in self._messages[first:last]]

    def _view(self, message: StoredMessage) -> MessageView:
        facts = dict(message.facts)
        if message.id == self._coming:  # what is kept of it is for the case that it never ends
            facts.pop("end", None)
        elif message.id != self._messages[-1].id and "end" in facts:
            facts["end"] = facts["end"].removesuffix(GOES_ON)
        return MessageView(replace(message, facts=facts), self._branch.version(message.id))


def more_button(hidden: int, which: str) -> Button:
    """A button for messages that are not there yet."""
    return Button(f"Show {min(hidden, SHOWN)} of {hidden} {which} messages", id=which, compact=True)
