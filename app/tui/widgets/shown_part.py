"""The part of a branch's messages that is on screen, which moves with scrolling. Knows messages and no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from app.chats.store import StoredMessage

SHOWN = 20  # messages of a long chat that are mounted in one step
MOST = 4 * SHOWN  # maximal messages mounted at the same time


class ShownPart:
    """All messages, and the range [first, last) of those on screen."""

    def __init__(self) -> None:
        self.messages: list[StoredMessage] = []
        self.first = self.last = 0

    @property
    def n(self) -> int:
        """The number of messages."""
        return len(self.messages)

    @property
    def n_after(self) -> int:
        """The number of messages after those on screen."""
        return self.n - self.last

    @property
    def is_last(self) -> bool:
        """Whether the last message is on screen."""
        return not self.n_after

    def take(self, messages: Sequence[StoredMessage]) -> int:
        """Replace the messages; return the number of leading ones with the same ids."""
        pairs = zip(self.messages, messages, strict=False)
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
        self.messages = list(messages)
        return n_same

    def around(self, message: int | None = None) -> tuple[int, int]:
        """Return a range of SHOWN messages that contains this one; the last ones for None."""
        at = next((i for i, each in enumerate(self.messages) if each.id == message), self.n - 1)
        first = max(0, min(at - SHOWN // 4, self.n - SHOWN))
        return first, min(self.n, first + SHOWN)

    def replace(self, message: StoredMessage) -> None:
        """Replace a message by a new state of it."""
        at = next((i for i in reversed(range(self.n)) if self.messages[i].id == message.id), None)
        if at is not None:
            self.messages[at] = message

    def find(self, message: int) -> StoredMessage | None:
        """Return the message of that id; the last ones are searched first."""
        return next((each for each in reversed(self.messages) if each.id == message), None)
