"""The keys on a message: copying, versions, deletion of a turn.

Knows messages on screen, the branch and the clipboard; starts no reply itself.
"""

from __future__ import annotations

from app.chats.store import StoredMessage
from app.terminal import clean
from app.tui.actions import editing
from app.tui.actions.asking import regenerate_message
from app.tui.actions.offering import show_chat
from app.tui.actions.writing import excerpt
from app.tui.chat import OpenChat
from app.tui.dialogs.confirm import ConfirmDialog
from app.tui.terminal import copy_text
from app.tui.widgets.message_view import MessageView
from runtime.core.errors import SettingsError


async def do_requested(screen: OpenChat, view: MessageView, what: str) -> None:
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
            ask_to_delete(screen, view.message_id)
        case "older" | "newer" if not screen.host.is_busy:
            await show_version(screen, view.message_id, -1 if what == "older" else 1)


async def show_version(screen: OpenChat, message: int, step: int) -> None:
    """Show the previous or next version of that message, if there is one."""
    if (version := screen.branch.switch_version(message, step)) is not None:
        await show_chat(screen, at=version)


def copy(screen: OpenChat, argument: str) -> None:
    """Copy the last reply, or its last code block."""
    replies = screen.transcript.views("assistant")
    if argument == "code":
        copy_text(screen, replies[-1].code() if replies else "", "code block")
    else:
        copy_text(screen, replies[-1].text if replies else "", "reply")


def delete_last(screen: OpenChat, argument: str) -> None:
    """Delete the last turn after a question back. Raises SettingsError."""
    messages = screen.branch.messages()
    if not messages:
        raise SettingsError("There is nothing to delete yet.")
    ask_to_delete(screen, messages[-1].id)


def ask_to_delete(screen: OpenChat, message: int) -> None:
    """Delete the turn of that message if the person confirms it. Raises SettingsError."""
    if screen.host.is_replying:
        raise SettingsError("A reply is being written. Esc stops it.")
    question = screen.branch.question_of(message)

    text = f"“{clean(excerpt(question.content))}” and every reply to it are deleted for good. Later turns stay."
    screen.ask(ConfirmDialog("Delete turn", text, "deletes them", "keeps them"), lambda _: delete(screen, question))


async def delete(screen: OpenChat, question: StoredMessage) -> None:
    """Delete a turn, and show what follows it."""
    before = [each.id for each in screen.branch.messages()]
    screen.branch.delete_turn(question.id)
    if screen.prompt.is_rewriting:
        screen.prompt.end_rewriting()
    left = {each.id for each in screen.branch.messages()}
    later = before[before.index(question.id) + 1 :] if question.id in before else []
    await show_chat(screen, at=next((each for each in later if each in left), None))


COMMANDS = {"copy": copy, "delete-turn": delete_last}
