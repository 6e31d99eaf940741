"""The output items of a response, and the events for their progress.

Knows the deltas of a chat; must not know chunks or requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from app.server.openai.block_writer import BlockWriter
from app.server.openai.common import new_id
from app.server.openai.reply_reader import Delta
from app.server.wire import Event


class Kind(NamedTuple):
    """What items of a kind have: the beginning of their ids and bodies, and the name and fields of what they say."""

    prefix: str
    head: Event
    name: str
    more: Event


KINDS = {
    "content": Kind("msg_", {"type": "message", "role": "assistant"}, "output_text", {"logprobs": []}),
    "reasoning_content": Kind("rs_", {"type": "reasoning", "summary": []}, "reasoning_text", {}),
    "tool_calls": Kind("fc_", {"type": "function_call"}, "function_call_arguments", {}),
}


class OutputItems(BlockWriter):
    """Writes the items. A message and reasoning have one part, the text; reasoning has no summary."""

    def _begin(self, call: Delta) -> Iterator[Event]:
        kind = KINDS[self.key]
        fields = {"call_id": call["id"], **call["function"], "arguments": ""} if call else {"content": []}
        self.block = {"id": new_id(kind.prefix)} | kind.head | {"status": "in_progress"} | fields
        yield self._whole("added")
        if not call:
            yield self._event("content_part.added", content_index=0, part=self._part())

    def _continue(self, text: str) -> Iterator[Event]:
        yield self._part_event("delta", delta=text)

    def _end(self, status: str) -> Iterator[Event]:
        if self.key == "tool_calls":
            fields: Event = {"arguments": self.text}
            yield self._part_event("done", **fields)
        else:
            fields = {"content": [self._part()]}
            yield self._part_event("done", text=self.text)
            yield self._event("content_part.done", content_index=0, part=self._part())
        self.block = self.block | fields | {"status": status}
        yield self._whole("done")

    def _part(self) -> Event:
        part: Event = {"type": KINDS[self.key].name, "text": self.text}
        return part | ({"annotations": [], "logprobs": []} if self.key == "content" else {})

    def _part_event(self, kind: str, **what: Any) -> Event:
        """Return the event for a part of what the item says, or all of it."""
        place = {} if self.key == "tool_calls" else {"content_index": 0}
        return self._event(f"{KINDS[self.key].name}.{kind}", **place, **what, **KINDS[self.key].more)

    def _whole(self, kind: str) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": len(self.blocks), "item": self.block}

    def _event(self, kind: str, **more: Any) -> Event:
        head = {"type": f"response.{kind}", "item_id": self.block["id"], "output_index": len(self.blocks)}
        return head | more
