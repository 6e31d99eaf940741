"""Builds a reply's content blocks from a chat's deltas, whole and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.server.wire import Event

# Delta of a chat to the type of block, which is also the field that the delta adds to.
KINDS = {"reasoning_content": "thinking", "content": "text"}
UNSIGNED = {"signature": ""}  # nothing checks it


class ReplyBlocks:
    """The blocks so far. Each event is about the last one."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._json = ""  # of the input of the last tool call

    def feed(self, delta: Event) -> Iterator[Event]:
        """Yield the events for a delta of reasoning, text or tool calls."""
        for name, kind in KINDS.items():
            if text := delta.get(name):
                yield from self._write(kind, str(text))
        calls: Any = delta.get("tool_calls", ())
        for piece in calls:
            yield from self._call(piece)

    def finish(self) -> Iterator[Event]:
        """Yield the end of the last block."""
        if not self.blocks:
            return
        block = self.blocks[-1]
        if block["type"] == "thinking":
            yield self._delta("signature_delta", **UNSIGNED)
        elif block["type"] == "tool_use":
            block["input"] = as_object(self._json)
        yield self._event("content_block_stop")

    def _write(self, kind: str, text: str) -> Iterator[Event]:
        if not self.blocks or self.blocks[-1]["type"] != kind:
            yield from self._begin({"type": kind, kind: ""} | (UNSIGNED if kind == "thinking" else {}))
        self.blocks[-1][kind] += text
        yield self._delta(f"{kind}_delta", **{kind: text})

    def _call(self, piece: dict[str, Any]) -> Iterator[Event]:
        """Yield the events for the start of a call, or for more of its arguments."""
        function = piece["function"]
        if "id" in piece:
            tool_id = "toolu_" + piece["id"].removeprefix("call_")
            yield from self._begin({"type": "tool_use", "id": tool_id, "name": function["name"], "input": {}})
            self._json = ""
        if text := function["arguments"]:
            self._json += text
            yield self._delta("input_json_delta", partial_json=text)

    def _begin(self, block: dict[str, Any]) -> Iterator[Event]:
        yield from self.finish()
        self.blocks.append(block)
        yield self._event("content_block_start", content_block=dict(block))
        if len(self.blocks) == 1:
            yield {"type": "ping"}

    def _delta(self, kind: str, **more: str) -> Event:
        return self._event("content_block_delta", delta={"type": kind, **more})

    def _event(self, kind: str, **more: Any) -> Event:
        return {"type": kind, "index": len(self.blocks) - 1, **more}


def as_object(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object, empty if the reply ended before they were complete."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
