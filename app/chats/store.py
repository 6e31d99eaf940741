"""Chats on disk: SQLite, one tree of messages per chat, full-text search, and preferences.

Knows no widgets and no models.

An edited or regenerated message is a new child of the same parent, so nothing is ever overwritten. A chat remembers its
current leaf.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.chats.chat_file import ChatFile
from app.chats.database import StoreError, default_path
from app.chats.titles import MAX_CHARACTERS, title_of

DELETED = "This chat was deleted in another window. Start a new one."
BRANCH = """
WITH RECURSIVE branch(id, parent, role, content, facts, depth) AS (
    SELECT id, parent, role, content, facts, 0 FROM messages WHERE id = ?
    UNION ALL SELECT m.id, m.parent, m.role, m.content, m.facts, depth + 1
    FROM messages m JOIN branch b ON m.id = b.parent)
SELECT id, parent, role, content, facts FROM branch ORDER BY depth DESC
"""
NEWEST = """
WITH RECURSIVE below(id, depth) AS (
    SELECT ?, 0 UNION ALL
    SELECT (SELECT max(m.id) FROM messages m WHERE m.parent = b.id), depth + 1 FROM below b WHERE b.id IS NOT NULL)
SELECT id FROM below WHERE id IS NOT NULL ORDER BY depth DESC LIMIT 1
"""
VERSIONS = """
SELECT m.id FROM messages m JOIN messages s ON m.chat = s.chat AND m.parent IS s.parent AND m.role = s.role
WHERE s.id = ? ORDER BY m.id
"""
SEARCH = """
SELECT c.id, c.title, c.system, c.leaf, c.changed, snippet(found, 0, '', '', '…', 12)
FROM found JOIN messages m ON m.id = found.rowid JOIN chats c ON c.id = m.chat WHERE found MATCH ? ORDER BY rank LIMIT ?
"""

# Not if another window has deleted the message meanwhile
KEEP_PICTURE = "INSERT OR IGNORE INTO pictures SELECT ?, ? WHERE EXISTS (SELECT 1 FROM messages WHERE id = ?)"


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation and its position in its tree."""

    id: int
    title: str
    system: str
    leaf: int | None
    changed: float
    excerpt: str = ""  # excerpt of a search result


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message, a node of a chat's tree."""

    id: int
    parent: int | None
    role: str  # user, assistant
    content: str
    facts: dict[str, Any]  # of a reply: the drafter of each character, and its numbers


class Store(ChatFile):
    """The open chats of one user.

    If they cannot be written, they continue in memory and `problem` gives the reason. Raises StoreError for a newer
    format and for a file that is something else.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, is_usual=path == default_path())

    def new_chat(self, first: str, system: str = "") -> int:
        """Create a chat titled by its first message and return its id."""
        return self.write(
            "INSERT INTO chats(title, system, changed) VALUES (?, ?, ?)", title_of(first), system, time.time()
        )

    def chat(self, chat: int) -> Chat:
        """Return the chat's title, system prompt and leaf. Raises StoreError if it no longer exists."""
        rows = self.read("SELECT id, title, system, leaf, changed FROM chats WHERE id = ?", chat)
        if not rows:
            raise StoreError(DELETED)
        return Chat(*rows[0])

    def chats(self, query: str = "", most: int = 200) -> list[Chat]:
        """Return all chats, latest first.

        With a query, return those with a message whose words begin with all words of the query, best match first.
        """
        if not (words := query.split()):
            rows = self.read("SELECT id, title, system, leaf, changed FROM chats ORDER BY changed DESC LIMIT ?", most)
            return [Chat(*row) for row in rows]
        pattern = " ".join('"' + word.replace('"', '""') + '"*' for word in words)
        found: dict[int, Chat] = {}
        for row in self.read(SEARCH, pattern, most):
            found.setdefault(row[0], Chat(*row))
        return list(found.values())

    def add_message(
        self,
        chat: int,
        parent: int | None,
        role: str,
        content: str,
        facts: dict[str, Any] | None = None,
        pictures: Mapping[str, bytes] = MappingProxyType({}),
    ) -> int:
        """Add a message, with the files of its pictures by their hashes, and make it the chat's leaf. Raises StoreError
        if the chat no longer exists.
        """
        try:
            message = self.write(
                "INSERT INTO messages(chat, parent, role, content, facts) VALUES (?, ?, ?, ?, ?)",
                chat, parent, role, content, json.dumps(facts or {}),
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            raise StoreError(DELETED) from error
        for name, data in pictures.items():
            self.write(KEEP_PICTURE, name, data, message)
        self.set_leaf(chat, message)
        return message

    def pictures(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the files of pictures by their hashes, as far as they are there."""
        found = {name: self.read("SELECT data FROM pictures WHERE hash = ?", name) for name in names}
        return {name: bytes(rows[0][0]) for name, rows in found.items() if rows}

    def update_message(self, message: int, content: str, facts: dict[str, Any] | None = None) -> None:
        """Replace a message's text and facts."""
        self.write("UPDATE messages SET content = ?, facts = ? WHERE id = ?", content, json.dumps(facts or {}), message)

    def set_leaf(self, chat: int, leaf: int | None) -> None:
        """Set the chat's position in its tree."""
        self.write("UPDATE chats SET leaf = ?, changed = ? WHERE id = ?", leaf, time.time(), chat)

    def branch(self, leaf: int | None) -> list[StoredMessage]:
        """Return the messages from the chat's beginning to a leaf."""
        rows = self.read(BRANCH, leaf)
        return [
            StoredMessage(message, parent, role, content, read_json(facts))
            for message, parent, role, content, facts in rows
        ]

    def versions(self, message: int) -> list[int]:
        """Return the message and its alternatives, oldest first."""
        return [row[0] for row in self.read(VERSIONS, message)]

    def newest_leaf(self, message: int) -> int:
        """Return the end of the latest conversation through a message."""
        return int(self.read(NEWEST, message)[0][0])

    def delete_turn(self, question: int) -> None:
        """Remove a question and all replies to it. What follows them stays, after the message before the question."""
        above = "(SELECT parent FROM messages WHERE id = ?)"
        replies = "(SELECT id FROM messages WHERE parent = ? AND role = 'assistant')"
        after = f"parent IN {replies} OR parent = ? AND role = 'user'"
        self.write(f"UPDATE messages SET parent = {above} WHERE {after}", question, question, question)
        self.write("DELETE FROM messages WHERE id = ? OR parent = ?", question, question)

    def rename(self, chat: int, title: str) -> None:
        """Change the chat's title."""
        self.write("UPDATE chats SET title = ? WHERE id = ?", title.strip()[: 2 * MAX_CHARACTERS], chat)

    def set_system(self, chat: int, system: str) -> None:
        """Change the chat's system prompt."""
        self.write("UPDATE chats SET system = ? WHERE id = ?", system, chat)

    def set_settings(self, chat: int, values: Mapping[str, Any]) -> None:
        """Store the chat's reply settings."""
        self.write("INSERT OR REPLACE INTO settings VALUES (?, ?)", chat, json.dumps(dict(values)))

    def settings(self, chat: int) -> dict[str, Any]:
        """Return the chat's reply settings."""
        rows = self.read("SELECT value FROM settings WHERE chat = ?", chat)
        return read_json(rows[0][0]) if rows else {}

    def delete(self, chat: int) -> None:
        """Remove a chat and all its branches."""
        self.write("DELETE FROM chats WHERE id = ?", chat)

    def prompts(self, most: int = 500) -> list[str]:
        """Return the user's latest messages, oldest first, each once."""
        rows = self.read(
            "SELECT content FROM messages WHERE role = 'user' GROUP BY content ORDER BY max(id) DESC LIMIT ?", most
        )
        return [row[0] for row in rows][::-1]

    def set_preference(self, name: str, value: str) -> None:
        """Store a small value for the next start, such as the theme."""
        self.write("INSERT OR REPLACE INTO kept VALUES (?, ?)", name, value)

    def preference(self, name: str) -> str:
        """Return the value stored under that name, or ""."""
        rows = self.read("SELECT value FROM kept WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""


def read_json(text: str) -> dict[str, Any]:
    """Return the stored object, or {} if a damaged disk has changed it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
