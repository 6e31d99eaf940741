"""Replies in Ollama's format: a line of JSON for each piece, or one for the whole reply."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from app.server.described import moment
from app.server.openai.reply_reader import ReplyReader, as_object, merge_tool_calls
from app.server.task_response import Formatter
from app.server.wire import NDJSON, Event
from runtime.engine import Chunk
from runtime.engine.stats import Stats

NANO = 10**9


class OllamaReply(BaseModel):
    """The last line of a reply, which has its numbers: tokens and nanoseconds. A chat's has `message`, a text's
    `response`.
    """

    model: str
    created_at: str
    done: bool
    done_reason: str
    total_duration: int = 0
    load_duration: int = 0
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    context: list[int] = []


class OllamaFormatter(Formatter):
    """Writes the lines of one reply. `is_chat`: as messages."""

    framing, asks_at_end = NDJSON, False

    def __init__(self, model: str, reply: ReplyReader, is_chat: bool) -> None:
        self._model, self._reply, self._is_chat = model, reply, is_chat
        self._calls: list[Event] = []
        self._began = time.perf_counter()

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield a line for each piece of text or reasoning. Tool calls come with the last chunk, because Ollama sends
        them whole.
        """
        for delta in self._reply.read(chunk):
            if "tool_calls" in delta:
                self._calls.append(delta)
            else:
                yield self._line(delta.get("content", ""), delta.get("reasoning_content", ""))
        if chunk.finish_reason and self._calls:
            yield self._line(calls=merge_tool_calls(self._calls))

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the line with the finish reason and the numbers."""
        yield self._line() | self._ending(last)

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the whole reply as one line."""
        return self._line(*self._reply.whole(chunks)) | self._ending(chunks[-1])

    def loaded(self, reason: str = "load") -> Event:
        """Return the line that answers a request without a prompt: the model was loaded, or is unloaded."""
        return self._line() | {"done": True, "done_reason": reason}

    def _line(self, text: str = "", thought: str = "", calls: Iterable[Event] = ()) -> Event:
        message: Event = {"content" if self._is_chat else "response": text}
        if thought:
            message["thinking"] = thought
        if whole := list(map(called, calls)):
            message["tool_calls"] = whole
        head: Event = {"model": self._model, "created_at": moment()}
        return head | ({"message": {"role": "assistant", **message}} if self._is_chat else message) | {"done": False}

    def _ending(self, last: Chunk) -> Event:
        stats = last.stats or Stats()
        return {
            "done": True, "done_reason": last.finish_reason,
            "total_duration": int(NANO * (time.perf_counter() - self._began)), "load_duration": 0,
            "prompt_eval_count": stats.prompt_n, "prompt_eval_duration": int(NANO * stats.prompt_seconds),
            "eval_count": stats.predicted_n, "eval_duration": int(NANO * stats.decode_seconds),
        }  # fmt: skip


def called(call: dict[str, Any]) -> Event:
    """Return a complete call with its arguments as an object. Those of a truncated call are left out."""
    function = call["function"]
    return {"id": call["id"], "function": {"name": function["name"], "arguments": as_object(function["arguments"])}}
