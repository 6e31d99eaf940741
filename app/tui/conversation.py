"""One chat as it is on screen: where in the tree of messages it stands, and what a model is to be asked.

Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from app.chats.store import DELETED, Said, Store, StoreError
from runtime.engine import Message

OPEN, CLOSE = "<think>", "</think>"


class Conversation:
    """A branch of a chat in the store. The chat is made when the first thing is said."""

    def __init__(self, store: Store, chat: int | None = None, system: str = "") -> None:
        self.store, self.id, self.system = store, chat, system
        self.leaf: int | None = None
        self.title = ""
        if chat is not None:
            self.refresh()

    def refresh(self) -> None:
        """Reads the chat's facts again."""
        if self.id is not None:
            chat = self.store.chat(self.id)
            self.title, self.system, self.leaf = chat.title, chat.system, chat.leaf

    def said(self) -> list[Said]:
        """From the beginning to where the chat stands."""
        return self.store.branch(self.leaf)

    def ask(self, text: str) -> None:
        """Says something new at the end."""
        if self.id is None:
            self.id = self.store.new_chat(text, self.system)
        self._say("user", text)
        self.refresh()

    def ask_instead(self, message: int, text: str) -> None:
        """Says something else in that message's place; the old branch stays."""
        self.leaf = self._of(message).parent
        self.ask(text)

    def begin_reply(self) -> int:
        """An empty reply to what was said last."""
        return self._say("assistant", "")

    def again(self, message: int) -> bool:
        """Stands before that reply, or after that question, so that another reply can be made; the old one stays."""
        said = self._of(message)
        self.leaf = said.parent if said.role == "assistant" else said.id
        return self.leaf is not None

    def _say(self, role: str, text: str) -> int:
        assert self.id is not None
        self.leaf = self.store.say(self.id, self.leaf, role, text)
        return self.leaf

    def _of(self, message: int) -> Said:
        if not (branch := self.store.branch(message)):
            raise StoreError(DELETED)
        return branch[-1]

    def version(self, message: int) -> tuple[int, int]:
        """Which of how many alternatives the message is, from 1."""
        versions = self.store.versions(message)
        return versions.index(message) + 1, len(versions)

    def turn_to(self, message: int, step: int) -> bool:
        """Goes to the alternative before or after; False where there is none."""
        versions = self.store.versions(message)
        i = versions.index(message) + step
        if not 0 <= i < len(versions) or self.id is None:
            return False
        self.leaf = self.store.newest_leaf(versions[i])
        self.store.stand(self.id, self.leaf)
        return True

    def set_system(self, text: str) -> None:
        """From now on."""
        self.system = text
        if self.id is not None:
            self.store.set_system(self.id, text)

    def turns(self) -> list[Message]:
        """What the model is asked: an empty reply is left out, one that has begun is to be continued.

        Questions without a reply between them become one, because many templates refuse two in a row.
        """
        said = [each for each in self.said() if each.content]
        turns = [Message("system", self.system)] * bool(self.system)
        for role, group in groupby(said, lambda each: each.role):
            turns.append(Message(role, "\n\n".join(answer_of(each, said) for each in group)))
        return turns


def answer_of(each: Said, said: Sequence[Said]) -> str:
    """What was said, without the thinking of earlier replies."""
    return each.content if each.role == "user" or each is said[-1] else split_thinking(each.content)[1]


def split_thinking(text: str) -> tuple[str, str]:
    """What a model thought before it answered, and the answer. Thinking that has no end yet is all there is."""
    if not text.lstrip().startswith(OPEN):
        return "", text
    thought, _, answer = text.lstrip().removeprefix(OPEN).partition(CLOSE)
    return thought.strip(), answer.lstrip("\n")
