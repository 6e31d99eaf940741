"""Chats are started, opened, renamed and exported.

Knows the store's chats and the dialogs for them; generates no replies.
"""

from __future__ import annotations

from functools import partial

from app.chats.export import export as export_chat
from app.tui.actions import offering
from app.tui.actions.offering import show_chat
from app.tui.chat import OpenChat
from app.tui.dialogs.basic import TextDialog
from app.tui.dialogs.chat_list import ChatList
from runtime.core.errors import SettingsError

NUMBERS = "--numbers"  # also export the model and the speed of each reply


async def new(screen: OpenChat, argument: str) -> None:
    """Start an empty chat with the system prompt of new chats."""
    await open_chat(screen, None)


async def open_chat(screen: OpenChat, chat: int | None) -> None:
    """Show another chat, after stopping the current reply; waiting messages return to the prompt."""
    if screen.queue.texts:
        screen.composer.take_back()
    if screen.host.is_replying:
        screen.host.cancel()
        screen.waiting = partial(open_chat, chat=chat)
        return
    screen.waiting = None
    screen.branch = screen.session.branch(chat)
    screen.prompt.end_rewriting()
    await show_chat(screen)
    offering.look_at_author(screen)
    screen.prompt.focus()


def chats(screen: OpenChat, argument: str) -> None:
    """List all chats and open the picked one."""

    def leave() -> None:
        screen.host.titles.cancel()
        screen.call_later(screen.attempt, open_chat, screen, None)

    dialog = ChatList(screen.session.store, screen.branch.id, leave)
    screen.ask(dialog, partial(open_or_reload, screen), partial(reload, screen))


async def open_or_reload(screen: OpenChat, chat: int) -> None:
    """Show the picked chat; the title of the current one may have changed."""
    if chat != screen.branch.id:
        await open_chat(screen, chat)
    reload(screen)


def reload(screen: OpenChat) -> None:
    """Show the title of the chat again, which may have changed."""
    screen.branch.reload()
    screen.show_title()


def rename(screen: OpenChat, argument: str) -> None:
    """Change the title of this chat."""
    if screen.branch.id is None:
        screen.notify("Ask something first: an empty chat is not kept.")
    elif argument:
        set_title(screen, screen.branch.id, argument)
    else:
        screen.ask(TextDialog("Rename chat", screen.branch.title), partial(set_title, screen, screen.branch.id))


def set_title(screen: OpenChat, chat: int, title: str) -> None:
    """Store and show the title of a chat."""
    screen.session.store.rename(chat, title)
    reload(screen)


def take_title(screen: OpenChat, chat: int, before: str, title: str) -> None:
    """Change the title of a chat if it is still `before`."""
    if screen.session.store.chat(chat).title == before:
        screen.session.store.rename(chat, title)
        if screen.branch.id == chat:
            screen.branch.title = title
            screen.show_title()


def export(screen: OpenChat, argument: str) -> None:
    """Write this chat to a file, with the numbers of its replies if requested."""
    if screen.branch.id is None:
        raise SettingsError("There is nothing to export yet. Ask something first.")
    screen.host.save()
    chat = screen.session.store.chat(screen.branch.id)
    with_numbers = argument.split()[:1] == [NUMBERS]
    if argument.startswith("--") and not with_numbers:
        raise SettingsError(f"The only option is {NUMBERS}: /export {NUMBERS} chat.md")
    name = argument.removeprefix(NUMBERS * with_numbers).strip()
    files = screen.branch.picture_files()
    screen.notify(f"Written to {export_chat(chat, screen.branch.messages(), name, with_numbers, files)}")


COMMANDS = {"new": new, "chats": chats, "rename": rename, "export": export}
