"""The keys on a message, and copying from it.

Knows messages on screen and the clipboard; starts no reply itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.tui.actions import deleting, editing
from app.tui.actions.asking import regenerate_message
from app.tui.background.copying import copy_text
from app.tui.widgets.message_view import MessageView

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


async def do_requested(screen: ChatScreen, view: MessageView, what: str) -> None:
    """Run the action of a key that was pressed on that message."""
    match what:
        case "copy":
            copy_text(screen, view.text, "message")
        case "copy_code":
            copy_text(screen, view.code(), "code block")
        case "regenerate":
            await regenerate_message(screen, view.message_id)
        case "edit" if view.role == "user":
            screen.prompt.begin_rewriting(view.message_id, view.text)
        case "diff" if view.role == "assistant":
            editing.show_of(screen, view.message_id)
        case "delete_turn":
            deleting.ask_first(screen, view.message_id)
        case "older" | "newer" if not screen.host.is_busy:
            await show_version(screen, view.message_id, -1 if what == "older" else 1)


async def show_version(screen: ChatScreen, message: int, step: int) -> None:
    """Show the previous or next version of that message, if there is one."""
    if (version := screen.branch.switch_version(message, step)) is not None:
        await screen.show_chat(at=version)


def copy_link(screen: ChatScreen, address: str) -> None:
    """Copy the address of a link in a reply."""
    copy_text(screen, address, f"address {address}")


def copy(screen: ChatScreen, argument: str) -> None:
    """Copy the last reply, or its last code block."""
    replies = screen.transcript.views("assistant")
    if argument == "code":
        copy_text(screen, replies[-1].code() if replies else "", "code block")
    else:
        copy_text(screen, replies[-1].text if replies else "", "reply")


COMMANDS = {"copy": copy}
