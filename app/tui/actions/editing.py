"""Edits of attached files by a reply are shown, written and undone.

Knows the branch, the dialog and the file; `edits` finds the edits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from app.chats.store import Store, StoredMessage
from app.tui.actions import offering
from app.tui.chat import OpenChat
from app.tui.dialogs.confirm import DiffScreen
from app.tui.edits import ACCEPTED, Edit, last_edits
from app.tui.written_file import FileChange, take_back
from app.tui.written_file import change as change_file
from runtime.core.errors import SettingsError

KEPT, MOST = "edits", 8  # preference name of the edits that can be undone, and their maximal number


def diff(screen: OpenChat, argument: str) -> None:
    """Show the edit of a file in the last reply. Raises SettingsError."""
    if screen.host.is_replying:
        raise SettingsError("The reply is being written. Its changes to a file can be seen when it ends.")
    show(screen, screen.branch.messages())


def show_of(screen: OpenChat, message: int) -> None:
    """Show the edit of a file in that reply. Raises SettingsError."""
    show(screen, screen.session.store.branch(message))


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


COMMANDS = {"diff": diff, "undo": undo}
