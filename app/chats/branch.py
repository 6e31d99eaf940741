"""One branch of a chat: its position in the tree of messages, and the prompt for the model there.

Knows the store; knows no widgets and no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from app.chats.database import StoreError
from app.chats.pictures import Attached, ChatPicture, facts_of, pictures_in, with_marks
from app.chats.store import DELETED, Store, StoredMessage
from app.reply_text import split_reasoning
from runtime.engine import Message

CONTINUE_HINT = ": /continue goes on"  # appended to a reply's end reason if it can be continued
INTERRUPTED = "interrupted" + CONTINUE_HINT  # end reason of a reply if nothing else is known
TOO_LONG = "too_long"  # fact of a reply: its question did not fit into the context
FULL_AT = "full_at"  # fact of a reply that had no more room: the context's tokens
NONE: Attached = MappingProxyType({})  # no pictures
NO_ROOM = "no_room"  # fact of a reply: it could continue without the oldest turns


class ChatBranch:
    """A path through a chat's tree, from the first message to the leaf. The chat is created with its first message,
    with the system prompt and settings for new chats.
    """

    def __init__(
        self, store: Store, chat: int | None = None, system: str = "", settings: Mapping[str, Any] | None = None
    ) -> None:
        self.store, self.id, self.system = store, chat, system
        self.settings: Mapping[str, Any] = settings or {}  # this chat's reply settings
        self.leaf: int | None = None
        self.title = self.typed = ""  # typed: the first question without pasted text, if it was asked in this run
        self.reload()

    def reload(self) -> None:
        """Read title, system prompt, leaf and settings again. Raises StoreError if the chat no longer exists."""
        if self.id is not None:
            chat = self.store.chat(self.id)
            self.title, self.system, self.leaf = chat.title, chat.system, chat.leaf
            self.settings = self.store.settings(self.id)

    def messages(self) -> list[StoredMessage]:
        """Return the messages from the beginning to the leaf."""
        return self.store.branch(self.leaf)

    def ask(self, text: str, typed: str | None = None, pictures: Attached = NONE) -> None:
        """Add a question at the end, with its pictures. `typed` is its part that was not pasted, which titles a new
        chat.
        """
        if self.id is None:
            self.typed = text if typed is None else typed.strip()
            n = len(text.splitlines())
            self.id = self.store.new_chat(self.typed or f"Pasted text, {n} line{'s' * (n != 1)}", self.system)
            self.store.set_settings(self.id, self.settings)
        self._add("user", text, facts_of(pictures), {each.key: data for each, data in pictures.items()})
        self.reload()

    def ask_instead(self, message: int, text: str, pictures: Attached = NONE) -> None:
        """Add a question in place of that message. The old branch stays."""
        self.leaf = self._message(message).parent
        self.ask(text, pictures=pictures)

    def pictures_of(self, message: int) -> dict[ChatPicture, bytes]:
        """Return the pictures of a question, as far as their files are there."""
        asked = pictures_in(self._message(message).facts)
        files = self.store.pictures(each.key for each in asked)
        return {each: files[each.key] for each in asked if each.key in files}

    def picture_files(self) -> dict[str, bytes]:
        """Return the files of all pictures up to the leaf, by their hashes."""
        return self.store.pictures(each.key for asked in self.messages() for each in pictures_in(asked.facts))

    def images(self) -> tuple[bytes, ...]:
        """Return these files."""
        return tuple(self.picture_files().values())

    def begin_reply(self, signature: Mapping[str, Any] | None = None) -> StoredMessage:
        """Add an empty reply to the last message. It is stored as interrupted, which stays true if it never ends."""
        parent = self.leaf
        facts = dict(signature or {})
        return StoredMessage(self._add("assistant", "", {**facts, "end": INTERRUPTED}), parent, "assistant", "", facts)

    def rewind_for_reply(self, message: int) -> bool:
        """Move the leaf before that reply, or to that question, so that another reply can follow. The old one stays.

        Returns False if there is nothing to reply to.
        """
        found = self._message(message)
        self.leaf = found.parent if found.role == "assistant" else found.id
        return self.leaf is not None

    def version(self, message: int) -> tuple[int, int]:
        """Return the message's number among its alternatives, from 1, and the number of alternatives."""
        versions = self.store.versions(message)
        return versions.index(message) + 1, len(versions)

    def switch_version(self, message: int, step: int) -> int | None:
        """Move to the alternative before or after that message and return it, or None if there is none."""
        versions = self.store.versions(message)
        i = versions.index(message) + step
        if not 0 <= i < len(versions) or self.id is None:
            return None
        self.leaf = self.store.newest_leaf(versions[i])
        self.store.set_leaf(self.id, self.leaf)
        return versions[i]

    def question_of(self, message: int) -> StoredMessage:
        """Return the question of a turn, of which the message is the question or the reply. Raises StoreError."""
        found = self._message(message)
        return found if found.role == "user" or found.parent is None else self._message(found.parent)

    def delete_turn(self, message: int) -> None:
        """Remove the question and the replies of a turn; later turns stay. Of a last turn with other versions, the
        latest of those is shown next.
        """
        question, last = self.question_of(message), self.messages()[-1]
        others = [each for each in self.store.versions(question.id) if each != question.id]
        if self.id is not None and question.id in (last.id, last.parent):
            self.leaf = self.store.newest_leaf(others[-1]) if others else question.parent
            self.store.set_leaf(self.id, self.leaf)
        self.store.delete_turn(question.id)

    def set_system(self, text: str) -> None:
        """Change the system prompt from the next reply on."""
        self.system = text
        if self.id is not None:
            self.store.set_system(self.id, text)

    def set_settings(self, values: Mapping[str, Any]) -> None:
        """Change the reply settings from the next reply on."""
        self.settings = values
        if self.id is not None:
            self.store.set_settings(self.id, values)

    def prompt(self, question: str = "", pictures: Iterable[ChatPicture] = ()) -> list[Message]:
        """Return the prompt for the model, with marks for pictures, and with a further question if there is one. It
        leaves out an empty reply, and earlier questions that were too long. A reply that has begun is to be continued.

        Questions without a reply between them are merged, because many templates refuse two in a row.
        """
        branch = self.messages()
        too_long = {each.parent for each in branch if each.facts.get(TOO_LONG)}
        stored = [each for each in branch if each.content and each.id not in too_long]
        if question:
            stored.append(StoredMessage(0, self.leaf, "user", question, facts_of(pictures)))
        prompt = [Message("system", self.system)] * bool(self.system)
        for role, group in groupby(stored, lambda each: each.role):
            prompt.append(Message(role, "\n\n".join(prompt_text(each, stored) for each in group)))
        return prompt

    def _add(
        self,
        role: str,
        text: str,
        facts: dict[str, Any] | None = None,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> int:
        assert self.id is not None
        self.leaf = self.store.add_message(self.id, self.leaf, role, text, facts, files)
        return self.leaf

    def _message(self, message: int) -> StoredMessage:
        if not (branch := self.store.branch(message)):
            raise StoreError(DELETED)
        return branch[-1]


def prompt_text(message: StoredMessage, branch: Sequence[StoredMessage]) -> str:
    """Return a message as the model receives it: a question with marks for its pictures, an earlier reply without its
    reasoning.
    """
    if message.role == "user":
        return with_marks(message.content, pictures_in(message.facts))
    return message.content if message is branch[-1] else split_reasoning(message.content)[1]
