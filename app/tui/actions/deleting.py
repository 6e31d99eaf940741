"""A turn is deleted: a question with its replies.

Knows the branch; generates no replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chats.store import StoredMessage
from app.tui.actions.writing import excerpt
from app.tui.dialogs.confirm import ConfirmDialog
from app.tui.pieces import clean
from runtime.core.errors import SettingsError

if TYPE_CHECKING:
    from app.tui.chat_screen import ChatScreen


def delete_last(screen: ChatScreen, argument: str) -> None:
    """Delete the last turn after a question back. Raises SettingsError."""
    messages = screen.branch.messages()
    if not messages:
        raise SettingsError("There is nothing to delete yet.")
    ask_first(screen, messages[-1].id)


def ask_first(screen: ChatScreen, message: int) -> None:
    """Delete the turn of that message if the person confirms it. Raises SettingsError."""
    if screen.host.is_replying:
        raise SettingsError("A reply is being written. Esc stops it.")
    question = screen.branch.question_of(message)

    async def answered(is_wanted: bool | None) -> None:
        if is_wanted:
            await screen.attempt(delete, screen, question)

    text = f"“{clean(excerpt(question.content))}” and every reply to it are deleted for good. Later turns stay."
    screen.app.push_screen(ConfirmDialog("Delete turn", text, "deletes them", "keeps them"), answered)


async def delete(screen: ChatScreen, question: StoredMessage) -> None:
    """Delete a turn, and show what follows it."""
    before = [each.id for each in screen.branch.messages()]
    screen.branch.delete_turn(question.id)
    if screen.prompt.is_rewriting:
        screen.prompt.end_rewriting()
    left = {each.id for each in screen.branch.messages()}
    later = before[before.index(question.id) + 1 :] if question.id in before else []
    await screen.show_chat(at=next((each for each in later if each in left), None))


COMMANDS = {"delete-turn": delete_last}
