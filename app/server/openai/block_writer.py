"""Writes a reply as blocks one after the other: reasoning, text and calls, each begun, continued and ended.

Knows the deltas of a chat; an interface decides what its blocks and events look like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from app.server.openai.reply_reader import Delta
from app.server.wire import Event


class BlockWriter(ABC):
    """Writes the blocks of one reply."""

    block: Event  # the open one so far

    def __init__(self) -> None:
        self.blocks: list[Event] = []  # that have ended
        self.key, self.text = "", ""  # of the deltas that the open block takes ("": none is open), and what they said

    @abstractmethod
    def _begin(self, call: Delta) -> Iterator[Event]:
        """Begin a block that takes deltas of this key; `call`: the call's first delta, or {}."""

    @abstractmethod
    def _continue(self, text: str) -> Iterator[Event]:
        """Yield the events for more text, or more arguments."""

    @abstractmethod
    def _end(self, status: str) -> Iterator[Event]:
        """Complete the block."""

    def feed(self, delta: Delta) -> Iterator[Event]:
        """Yield the events for a delta. One of another kind begins another block, and so does a call with an id."""
        ((key, value),) = delta.items()
        call: Delta = value[0] if key == "tool_calls" else {}
        if key != self.key or "id" in call:
            yield from self.finish()
            self.key, self.text = key, ""
            yield from self._begin(call)
        if text := call["function"]["arguments"] if call else value:
            self.text += text
            yield from self._continue(text)

    def finish(self, status: str = "completed") -> Iterator[Event]:
        """Yield the end of the open block, if there is one."""
        if self.key:
            yield from self._end(status)
            self.blocks.append(self.block)
            self.key = ""
