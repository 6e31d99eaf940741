"""Replies in Anthropic's Messages format: one body, or a stream of events."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from app.server.openai.reply_reader import BlockWriter, Delta, ReplyReader, as_object
from app.server.task_response import Formatter
from app.server.wire import Event
from runtime.engine import Chunk

# Delta of a chat to the type of block, and the type and the field of the block's deltas
KINDS = {
    "reasoning_content": ("thinking", "thinking_delta", "thinking"),
    "content": ("text", "text_delta", "text"),
    "tool_calls": ("tool_use", "input_json_delta", "partial_json"),
}
UNSIGNED = {"signature": ""}  # nothing checks it
REASONS: dict[str | None, StopReason] = {"length": "max_tokens", "tool_calls": "tool_use"}


class ReplyBlocks(BlockWriter):
    """Writes the blocks. Each event is about the last one."""

    def _begin(self, call: Delta) -> Iterator[Event]:
        kind = KINDS[self.key][0]
        if call:
            tool_id = "toolu_" + call["id"].removeprefix("call_")
            self.block = {"type": kind, "id": tool_id, "name": call["function"]["name"], "input": {}}
        else:
            self.block = {"type": kind, kind: "", **(UNSIGNED if kind == "thinking" else {})}
        yield self._event("content_block_start", content_block=self.block)
        if not self.blocks:
            yield {"type": "ping"}

    def _continue(self, text: str) -> Iterator[Event]:
        _, kind, field = KINDS[self.key]
        yield self._event("content_block_delta", delta={"type": kind, field: text})

    def _end(self, status: str) -> Iterator[Event]:
        if self.key == "reasoning_content":
            yield self._event("content_block_delta", delta={"type": "signature_delta", **UNSIGNED})
        fields = {"input": as_object(self.text)} if self.key == "tool_calls" else {KINDS[self.key][0]: self.text}
        self.block = self.block | fields
        yield self._event("content_block_stop")

    def _event(self, kind: str, **more: Any) -> Event:
        return {"type": kind, "index": len(self.blocks), **more}


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class ReplyBlock(BaseModel):
    """Text, thoughts or a tool call; the fields are those of its type."""

    type: Literal["text", "thinking", "tool_use"]
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class MessageUsage(BaseModel):
    """Tokens: read, cached, and generated."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageBody(BaseModel):
    """The body that answers a request to /messages."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ReplyBlock]
    stop_reason: StopReason
    stop_sequence: str | None
    usage: MessageUsage


class MessageFormatter(Formatter):
    """Writes messages. `reply` separates text, reasoning and calls."""

    def __init__(self, model: str, reply: ReplyReader, n_prompt: int) -> None:
        self._reply, self.n_prompt, self._blocks = reply, n_prompt, ReplyBlocks()
        name = f"msg_{secrets.token_hex(12)}"
        self.head: Event = {"id": name, "type": "message", "role": "assistant", "model": model}

    def first_events(self) -> Iterator[Event]:
        """Yield the start of the message. The number of cached tokens follows at its end."""
        nothing: Event = {"content": [], "stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": self.head | nothing | {"usage": usage(self.n_prompt)}}

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield the events of the blocks for this chunk."""
        for delta in self._reply.read(chunk):
            yield from self._blocks.feed(delta)
        if chunk.finish_reason:
            yield from self._blocks.finish()

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the finish reason and the numbers."""
        yield {"type": "message_delta", "delta": self._ending(last), "usage": self._usage(last)}
        yield {"type": "message_stop"}

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of MessageBody."""
        for chunk in chunks:
            deque(self.chunk_events(chunk), maxlen=0)
        last = chunks[-1]
        return self.head | {"content": self._blocks.blocks} | self._ending(last) | {"usage": self._usage(last)}

    def _ending(self, last: Chunk) -> Event:
        reason = REASONS.get(self._reply.finish_reason(last), "end_turn")
        return {"stop_reason": "stop_sequence" if last.stop else reason, "stop_sequence": last.stop or None}

    def _usage(self, last: Chunk) -> Event:
        stats = last.stats
        return usage(stats.prompt_n, stats.cached_n, stats.predicted_n) if stats else usage(self.n_prompt)


def usage(n_prompt: int, n_cached: int = 0, n_reply: int = 0) -> Event:
    """Return the body of MessageUsage."""
    return {
        "input_tokens": n_prompt - n_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": n_cached,
        "output_tokens": n_reply,
    }
