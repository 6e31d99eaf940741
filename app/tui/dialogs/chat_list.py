"""The list of chats: open, search in messages, rename, export, delete. Knows the store; knows no other screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input

from app.chats.export import export
from app.chats.store import Chat, Store
from app.terminal import clean
from app.tui.dialogs.basic import PickDialog, TextDialog
from runtime.core.errors import SettingsError


class ChatList(PickDialog[int]):
    """All chats. Returns the id of the chat to open, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+e", "rename", "Rename", priority=True),
        Binding("ctrl+x", "export", "Export", priority=True),
        Binding("ctrl+d", "delete", "Delete", priority=True),
    ]

    def __init__(self, store: Store, current: int | None, leave: Callable[[], object]) -> None:
        super().__init__("Chats", self._find, "\nCtrl+E renames · Ctrl+X exports · Ctrl+D twice deletes")
        self.store, self.current = store, current
        self._leave = leave  # called when the current chat is about to be deleted
        self._doomed: int | None = None  # the chat that a second Ctrl+D deletes

    def _find(self, query: str) -> Sequence[tuple[str, int]]:
        return [(line_of(chat, chat.id == self.current), chat.id) for chat in self.store.chats(query)]

    def action_rename(self) -> None:
        """Ask for another title."""
        if (chat := self.picked()) is not None:

            def rename(title: str | None) -> None:
                if title:
                    self.store.rename(chat, title)
                    self.refill()

            self.app.push_screen(TextDialog("Rename chat", self.store.chat(chat).title), rename)

    def action_export(self) -> None:
        """Write the chat to a file in the current folder."""
        if (picked := self.picked()) is not None:
            chat = self.store.chat(picked)
            try:
                self.notify(f"Written to {export(chat, self.store.branch(chat.leaf))}")
            except SettingsError as error:
                self.notify(str(error), severity="error")

    def action_delete(self) -> None:
        """Delete the chat at the second request in a row."""
        chat = self.picked()
        if chat is None:
            self.notify("There is nothing to delete.")
        elif chat == self._doomed:
            if chat == self.current:
                self.current = None
                self._leave()
            self.store.delete(chat)
            self.refill()
            self.notify("The chat is deleted.")
        else:
            self._doomed = chat
            then = " A new chat begins." * (chat == self.current)
            self.notify(f"Press Ctrl+D again to delete “{self.store.chat(chat).title}” for good.{then}")
        self.query_one(Input).focus()


def line_of(chat: Chat, is_current: bool) -> str:
    """Return the date, the title, and the excerpt that a search found."""
    day = datetime.fromtimestamp(chat.changed).strftime("%d %b %H:%M")
    mark = "▸" if is_current else " "
    excerpt = f"\n                {clean(' '.join(chat.excerpt.split()))}" if chat.excerpt else ""
    return f"{mark} {day}  {clean(chat.title)}{excerpt}"
