"""The output items of a response, and the events for their progress.

Knows the deltas of a chat; must not know chunks or requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from app.server.openai.common import new_id
from app.server.openai.reply_reader import Delta
from app.server.wire import Event


class OutputItem(ABC):
    """An item that is being written: its body so far and its position in the output."""

    body: Event

    def __init__(self, index: int) -> None:
        self.index, self.text = index, ""

    @abstractmethod
    def continues_with(self, delta: Delta) -> bool:
        """Return whether a delta belongs to this item."""

    @abstractmethod
    def feed(self, delta: Delta) -> Iterator[Event]:
        """Yield the events for a delta."""

    @abstractmethod
    def _finish(self) -> Iterator[Event]:
        """Complete the body and yield the events for that."""

    def begin(self) -> Iterator[Event]:
        """Yield the start of the item, which is still empty."""
        yield self._whole("added")

    def finish(self, status: str) -> Iterator[Event]:
        """Yield the end of the item, with its complete body."""
        yield from self._finish()
        self.body = self.body | {"status": status}
        yield self._whole("done")

    def _whole(self, kind: str) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": self.index, "item": self.body}

    def _event(self, kind: str, **more: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.body["id"], "output_index": self.index, **more}


class TextItem(OutputItem):
    """An item with one part of text."""

    key: str  # of its deltas
    kind: str  # of its part
    prefix: str  # of its id
    head: Event  # of its body
    part: Event  # without the text
    more: Event  # of its events

    def __init__(self, index: int, delta: Delta) -> None:
        super().__init__(index)
        self.body = {"id": new_id(self.prefix)} | self.head | {"status": "in_progress", "content": []}

    def continues_with(self, delta: Delta) -> bool:
        """Return whether the delta has text of this kind."""
        return self.key in delta

    def begin(self) -> Iterator[Event]:
        """Yield the start of the item and of its part."""
        yield from super().begin()
        yield self._event("content_part.added", content_index=0, part=self._part())

    def feed(self, delta: Delta) -> Iterator[Event]:
        """Yield the event for more text."""
        text = delta[self.key]
        self.text += text
        yield self._event(f"{self.kind}.delta", content_index=0, delta=text, **self.more)

    def _finish(self) -> Iterator[Event]:
        yield self._event(f"{self.kind}.done", content_index=0, text=self.text, **self.more)
        yield self._event("content_part.done", content_index=0, part=self._part())
        self.body = self.body | {"content": [self._part()]}

    def _part(self) -> Event:
        return {"type": self.kind, "text": self.text} | self.part


class MessageItem(TextItem):
    """The model's message."""

    key, kind, prefix, head = "content", "output_text", "msg_", {"type": "message", "role": "assistant"}
    part, more = {"annotations": [], "logprobs": []}, {"logprobs": []}


class ReasoningItem(TextItem):
    """The model's reasoning. There is no summary of it, so `summary` is empty."""

    key, kind, prefix, head = "reasoning_content", "reasoning_text", "rs_", {"type": "reasoning", "summary": []}
    part, more = {}, {}


class FunctionCallItem(OutputItem):
    """A call of a function."""

    def __init__(self, index: int, delta: Delta) -> None:
        super().__init__(index)
        (call,) = delta["tool_calls"]
        head: Event = {"id": new_id("fc_"), "type": "function_call", "call_id": call["id"]}
        self.body = head | {"status": "in_progress", "name": call["function"]["name"], "arguments": ""}

    def continues_with(self, delta: Delta) -> bool:
        """Return whether the delta has more arguments. Another call has an id."""
        return "tool_calls" in delta and "id" not in delta["tool_calls"][0]

    def feed(self, delta: Delta) -> Iterator[Event]:
        """Yield the event for more of the arguments."""
        if text := delta["tool_calls"][0]["function"]["arguments"]:
            self.text += text
            yield self._event("function_call_arguments.delta", delta=text)

    def _finish(self) -> Iterator[Event]:
        yield self._event("function_call_arguments.done", arguments=self.text)
        self.body = self.body | {"arguments": self.text}


KINDS = {"content": MessageItem, "reasoning_content": ReasoningItem, "tool_calls": FunctionCallItem}


class OutputWriter:
    """Writes the items one after the other."""

    def __init__(self) -> None:
        self.finished: list[Event] = []
        self._open: OutputItem | None = None

    def write(self, delta: Delta) -> Iterator[Event]:
        """Add a delta to the open item, or start another."""
        item = self._open
        if item is None or not item.continues_with(delta):
            yield from self.finish()
            item = self._open = KINDS[next(iter(delta))](len(self.finished), delta)
            yield from item.begin()
        yield from item.feed(delta)

    def finish(self, status: str = "completed") -> Iterator[Event]:
        """End the open item, also if it is incomplete."""
        if self._open:
            yield from self._open.finish(status)
            self.finished.append(self._open.body)
            self._open = None
