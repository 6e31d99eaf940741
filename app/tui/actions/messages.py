"""The keys on a message: copying, versions, deletion of a turn; edits of attached files by a reply, which are shown,
written and undone.

Knows messages on screen, the branch, the clipboard and the file; starts no reply itself, and `edits` finds the edits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from app.chats.store import Store, StoredMessage
from app.terminal import clean
from app.tui.actions import offering
from app.tui.actions.asking import excerpt, regenerate_message
from app.tui.actions.offering import show_chat
from app.tui.chat import OpenChat
from app.tui.dialogs.basic import ConfirmDialog, DiffScreen
from app.tui.edits import ACCEPTED, Edit, last_edits
from app.tui.terminal import copy_text
from app.tui.widgets.message_view import MessageView
from app.tui.written_file import FileChange, take_back
from app.tui.written_file import change as change_file
from runtime.core.errors import SettingsError

KEPT, MOST = "edits", 8  # preference name of the edits that can be undone, and their maximal number


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
            show(screen, screen.session.store.branch(view.message_id))
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


def diff(screen: OpenChat, argument: str) -> None:
    """Show the edit of a file in the last reply. Raises SettingsError."""
    if screen.host.is_replying:
        raise SettingsError("The reply is being written. Its changes to a file can be seen when it ends.")
    show(screen, screen.branch.messages())


def show(screen: OpenChat, messages: Sequence[StoredMessage]) -> None:
    """Show the first edit of the last message that is not accepted yet. Raises SettingsError."""
    edits = last_edits(messages)
    if not edits:
        raise SettingsError(why_none(messages))
    screen.ask(DiffScreen(edits[0]), lambda _: accept(screen, messages[-1].id, edits[0]))


def why_none(messages: Sequence[StoredMessage]) -> str:
    """Return the reason why there is no edit."""
    facts = messages[-1].facts if messages else {}
    if facts.get(ACCEPTED):
        return f"{' and '.join(facts[ACCEPTED])} is written already. /undo restores it."
    if messages and messages[-1].role == "assistant" and "end" in facts:
        return "That reply did not end, so it is not a whole file. /continue continues it, Ctrl+G asks again."
    return "That reply contains no whole file that was named with @. Ask for the complete file with the change."


def accept(screen: OpenChat, message: int, edit: Edit) -> None:
    """Write the file and record that with the reply. Raises SettingsError."""
    store, done = screen.session.store, change_file(Path(edit.path), edit.before, edit.after)
    keep(store, [*kept(store), (message, edit.path, done)])
    set_accepted(screen, message, edit.path, is_accepted=True)
    screen.notify(f"{edit.path} is written. /undo restores it.")
    screen.session.note(f"{done.path} is written with the changes of a reply")


def undo(screen: OpenChat, argument: str) -> None:
    """Undo the edit that was accepted last. Raises SettingsError."""
    store = screen.session.store
    if not (edits := kept(store)):
        raise SettingsError("No edit of a file was accepted, so there is nothing to undo. /edit changes a question.")
    *rest, (message, path, done) = edits
    take_back(done)
    keep(store, rest)
    set_accepted(screen, message, path, is_accepted=False)
    screen.notify(f"{path} is as it was before the changes.")
    screen.session.note(f"{done.path} is as it was before the changes (/undo)")


def set_accepted(screen: OpenChat, message: int, path: str, *, is_accepted: bool) -> None:
    """Record with a reply whether the file is written with its edit."""
    store = screen.session.store
    if branch := store.branch(message):
        found = branch[-1]
        others = [each for each in found.facts.get(ACCEPTED, []) if each != path]
        changed = replace(found, facts=found.facts | {ACCEPTED: [*others, *[path] * is_accepted]})
        store.update_message(message, changed.content, changed.facts)
        screen.transcript.tell(changed)
    offering.look(screen)


def kept(store: Store) -> list[tuple[int, str, FileChange]]:
    """Return the edits that can be undone, the latest last: (reply, file, change)."""
    try:
        told = json.loads(store.preference(KEPT) or "[]")
        return [(message, path, FileChange(**done)) for message, path, done in told]
    except (ValueError, RecursionError, TypeError):  # a damaged disk has changed it
        return []


def keep(store: Store, edits: Sequence[tuple[int, str, FileChange]]) -> None:
    """Store the latest of these edits."""
    last = edits[-MOST:]
    store.set_preference(KEPT, json.dumps([(message, path, asdict(done)) for message, path, done in last]))


COMMANDS = {"copy": copy, "delete-turn": delete_last, "diff": diff, "undo": undo}
