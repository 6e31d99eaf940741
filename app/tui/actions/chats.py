"""Chats are begun, opened, renamed, exported, and told a system prompt.

Knows the store's chats and the dialogs for them; makes no replies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.chats.branch import ChatBranch
from app.chats.export import export as export_chat
from app.tui.desktop.templates import read_template
from app.tui.dialogs.basic import TextDialog
from app.tui.dialogs.chat_list import ChatList
from runtime.core.errors import SettingsError

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


async def new(screen: ChatScreen, argument: str) -> None:
    """Begins an empty chat with the same system prompt."""
    await open_chat(screen, None)


async def open_chat(screen: ChatScreen, chat: int | None) -> None:
    """Shows another chat; a reply that is being made is stopped first."""
    if screen.host.is_replying:
        screen.host.cancel()
        screen.waiting = partial(open_chat, chat=chat)
        return
    screen.waiting = None
    screen.branch = ChatBranch(screen.session.store, chat, screen.branch.system if chat is None else "")
    screen.host.forget_passes()
    screen.prompt.end_rewriting()
    await screen.show_chat()
    screen.prompt.focus()


def chats(screen: ChatScreen, argument: str) -> None:
    """Lists all chats, and opens the one that is picked."""

    async def opened(chat: int | None) -> None:
        await screen.attempt(open_or_reload, screen, chat)

    screen.app.push_screen(ChatList(screen.session.store, screen.branch.id), opened)


async def open_or_reload(screen: ChatScreen, chat: int | None) -> None:
    """Shows the chat that was picked; the one on screen may have another title now."""
    if chat is not None and chat != screen.branch.id:
        await open_chat(screen, chat)
    screen.branch.reload()
    screen.show_title()


def rename(screen: ChatScreen, argument: str) -> None:
    """Gives this chat another title."""
    if screen.branch.id is None:
        screen.notify("Say something first: an empty chat is not kept.")
    elif argument:
        set_title(screen, screen.branch.id, argument)
    else:
        renamed = partial(set_title, screen, screen.branch.id)
        screen.app.push_screen(TextDialog("Rename chat", screen.branch.title), renamed)


def set_title(screen: ChatScreen, chat: int, title: str | None) -> None:
    """Keeps and shows a chat's title, if there is a new one."""
    if title:
        screen.session.store.rename(chat, title)
        screen.branch.reload()
        screen.show_title()


def take_title(screen: ChatScreen, chat: int, before: str, title: str) -> None:
    """Gives a chat another title, if it is still called as `before`."""
    if screen.session.store.chat(chat).title == before:
        screen.session.store.rename(chat, title)
        if screen.branch.id == chat:
            screen.branch.title = title
            screen.show_title()


def export(screen: ChatScreen, argument: str) -> None:
    """Writes this chat to a file."""
    if screen.branch.id is None:
        raise SettingsError("There is nothing to export yet. Say something first.")
    screen.host.save()
    chat = screen.session.store.chat(screen.branch.id)
    screen.notify(f"Written to {export_chat(chat, screen.branch.messages(), argument)}", markup=False)


def system(screen: ChatScreen, argument: str) -> None:
    """Changes what the model is told before the chat."""
    if argument == "none":
        set_system(screen, "")
    elif argument.startswith("@"):
        set_system(screen, read_template(argument[1:]))
    elif argument:
        set_system(screen, argument)
    else:
        dialog = TextDialog("System prompt", screen.branch.system, " · /system none removes it")
        screen.app.push_screen(dialog, partial(set_system, screen))


def set_system(screen: ChatScreen, text: str | None) -> None:
    """Keeps a chat's system prompt, if there is a new one."""
    if text is not None:
        screen.branch.set_system(text)
        screen.notify("The system prompt holds from the next reply on.")


COMMANDS = {"new": new, "chats": chats, "rename": rename, "export": export, "system": system}
