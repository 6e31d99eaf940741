"""Which messages of a branch are on screen: a part, which moves as one scrolls. Knows messages and no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from app.chats.store import StoredMessage

SHOWN = 20  # messages of a long chat that are put on screen at once
MOST = 4 * SHOWN  # that are there at the same time


class ShownPart:
    """All messages, and from which (`first`) to before which (`last`) they are on screen."""

    def __init__(self, messages: Sequence[StoredMessage] = ()) -> None:
        self.messages = list(messages)
        self.first = self.last = 0

    @property
    def n(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    @property
    def n_after(self) -> int:
        """How many come after those on screen."""
        return self.n - self.last

    @property
    def is_last(self) -> bool:
        """Is the last message on screen?"""
        return not self.n_after

    def take(self, messages: Sequence[StoredMessage]) -> int:
        """Has other messages from now on; of how many, from the first, are both the same?"""
        pairs = zip(self.messages, messages, strict=False)
        n_same = sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
        self.messages = list(messages)
        return n_same

    def at_end(self) -> tuple[int, int]:
        """The last ones, as many as are put on screen at once."""
        return max(0, self.n - SHOWN), self.n

    def around(self, message: int | None) -> tuple[int, int]:
        """As many, so that this one is among them; None: the last ones."""
        at = next((i for i, each in enumerate(self.messages) if each.id == message), self.n - 1)
        first = max(0, min(at - SHOWN // 4, self.n - SHOWN))
        return first, min(self.n, first + SHOWN)

    def replace(self, message: StoredMessage) -> None:
        """Has another state of the same message."""
        at = next((i for i in reversed(range(self.n)) if self.messages[i].id == message.id), None)
        if at is not None:
            self.messages[at] = message

    def find(self, message: int) -> StoredMessage | None:
        """The message of that id; the last ones are found first."""
        return next((each for each in reversed(self.messages) if each.id == message), None)
