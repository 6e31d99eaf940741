"""The messages of a chat on screen: the last ones, earlier ones on request, and the reply that grows at the end.

Knows the branch that it shows, to read it; makes no replies and changes no chat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual import on
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Static

from app.chats.branch import ChatBranch
from app.chats.store import StoredMessage
from app.tui.numbers import stats_of
from app.tui.pieces import Piece
from app.tui.widgets.message_view import MessageView
from runtime.speculative.control.explain import Pass

SHOWN = 40  # messages of a long chat that are put on screen at once
WELCOME = (
    "Ask something. Enter sends, Ctrl+J begins a line, F1 shows every key.\nA / begins a command, an @ attaches a file."
)


class Transcript(VerticalScroll, can_focus=False):
    """A view for each message of a branch. It stays at its end while a reply comes, unless one scrolls."""

    class EarlierRequested(Message):
        """More of the messages that are not on screen yet are wanted: show_earlier shows them."""

    def __init__(self, branch: ChatBranch, id: str | None = None) -> None:
        super().__init__(id=id)
        self._branch = branch

    @property
    def scroll_offset(self) -> Offset:
        """Never before the first message: Textual's anchor has a short chat stand at the bottom."""
        return Offset(max(0, round(self.scroll_x)), max(0, round(self.scroll_y)))

    async def show(self, branch: ChatBranch) -> None:
        """Shows the last messages of a branch, and nothing else."""
        self._branch = branch
        messages = branch.messages()
        views: list[Widget] = [self._view(each) for each in messages[-SHOWN:]]
        content = [*earlier_button(len(messages) - len(views)), *views]
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(content or [Static(Content(WELCOME), id="welcome")])
        self.anchor()

    @on(Button.Pressed, "#earlier")
    def _request_earlier(self, event: Button.Pressed) -> None:
        event.stop()
        self.post_message(self.EarlierRequested())

    async def show_earlier(self) -> None:
        """Shows as many messages more, above those that are there. Not while a reply comes."""
        first, messages = self.query(MessageView).first(), self._branch.messages()
        at = next(i for i, each in enumerate(messages) if each.id == first.message_id)
        above = messages[max(0, at - SHOWN) : at]
        self.release_anchor()
        await self.query("#earlier").remove()
        await self.mount_all([*earlier_button(at - len(above)), *map(self._view, above)], before=first)
        self.call_after_refresh(self.scroll_to_widget, first, animate=False, top=True)

    async def add(self, message: StoredMessage) -> None:
        """Shows a new message at the end."""
        await self.mount(self._view(message))
        self.anchor()

    async def append(self, message_id: int, pieces: Sequence[Piece]) -> None:
        """Shows more of a reply, where it is on screen."""
        if (view := self._find(message_id)) is not None:
            await view.append(pieces)
            if self.has_class("-tokens"):
                view.show_tokens()

    async def settle(self, message_id: int, pieces: Sequence[Piece], facts: dict[str, Any]) -> None:
        """Shows a complete reply with its numbers, where it is on screen."""
        if (view := self._find(message_id)) is not None:
            await view.settle(pieces, facts)

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

    def _view(self, message: StoredMessage) -> MessageView:
        return MessageView(message, self._branch.version(message.id))


def earlier_button(hidden: int) -> list[Widget]:
    """A button for messages that are not there yet, if there are any."""
    if not hidden:
        return []
    return [Button(f"Show {min(hidden, SHOWN)} of {hidden} earlier messages", id="earlier", compact=True)]
