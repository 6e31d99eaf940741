"""Reads a reply's chunks as deltas of OpenAI's chat format, with reasoning, content and tool calls separated, and
writes them as blocks one after the other for the interfaces that have such.

Must not know how deltas and blocks are sent.
"""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from app.reply_text import Delta as ReasoningDelta
from app.reply_text import ReasoningParser
from app.server.wire import Event
from runtime.conversation.calls import BareCalls, CallParser, HarmonyParser, ReplyPart
from runtime.engine import Chunk

Delta = dict[str, Any]


class ToolCallParser:
    """Reads a reply piece by piece. With `bare`, JSON of calls is read as calls."""

    def __init__(self, parser: CallParser | HarmonyParser, bare: BareCalls | None = None) -> None:
        self.n_calls = 0  # calls so far whose name is known
        self._parser, self._bare = parser, bare

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the deltas that are certain after `text`: {"content": ...}, {"reasoning_content": ...} or
        {"tool_calls": [...]}.
        """
        yield from self._deltas(self._parser.feed(self._bare.feed(text) if self._bare else text))

    def finish(self, is_cut: bool) -> Iterator[Delta]:
        """Yield the text that was held back. If the reply was cut off, an incomplete marker is dropped."""
        calls, text = self._bare.finish(is_cut) if self._bare else ([], "")
        parts = [
            part for name, arguments in calls for part in (ReplyPart("call", name), ReplyPart("arguments", arguments))
        ]
        yield from self._deltas(parts or [*self._parser.feed(text), *self._parser.finish(is_cut)])

    def _deltas(self, parts: Iterable[ReplyPart]) -> Iterator[Delta]:
        for kind, text in parts:
            if kind == "call":
                self.n_calls += 1
                function = {"name": text, "arguments": ""}
                yield self._call(id=f"call_{secrets.token_hex(8)}", type="function", function=function)
            elif kind == "arguments":
                yield self._call(function={"arguments": text})
            else:
                yield {"content" if kind == "content" else "reasoning_content": text}

    def _call(self, **fields: Any) -> Delta:
        return {"tool_calls": [{"index": self.n_calls - 1, **fields}]}


def merge_tool_calls(deltas: Iterable[Delta]) -> list[Delta]:
    """Return the tool calls, assembled from the pieces of a stream."""
    calls: list[Delta] = []
    for delta in deltas:
        for piece in delta.get("tool_calls", ()):
            if "id" in piece:
                calls.append({"id": piece["id"], "type": "function", "function": dict(piece["function"])})
            else:
                calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return calls


def as_object(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object, empty if the reply ended before they were complete."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class ReasoningReader:
    """Reads a reply chunk by chunk. `is_open`: the prompt has already opened the reasoning."""

    def __init__(self, is_open: bool) -> None:
        self._text, self._tokens = ReasoningParser(is_open), ReasoningParser(is_open)
        self._n = 0

    @property
    def n_tokens(self) -> int:
        """The number of reasoning tokens so far, with the markers. 0 if the reply began without reasoning."""
        return self._n if self._tokens.has_reasoning else 0

    def read(self, chunk: Chunk) -> Iterator[ReasoningDelta]:
        """Yield the deltas of reasoning and answer that are certain after this chunk.

        The reasoning may end within a chunk, so its tokens are also read one by one.
        """
        for piece in chunk.pieces[: len(chunk.tokens)]:
            if not self._tokens.is_answering:
                self._n += 1
                deque(self._tokens.feed(piece), maxlen=0)
        yield from self._text.feed(chunk.text)
        if chunk.finish_reason:
            yield from self._text.finish()


class WholeReply(NamedTuple):
    """A reply's text, its reasoning and its tool calls."""

    content: str
    reasoning: str
    calls: list[Delta]


class ReplyReader:
    """Reads a reply chunk by chunk. Without a parser or a reader, calls or reasoning stay part of the content."""

    def __init__(self, tool_calls: ToolCallParser | None = None, reasoning: ReasoningReader | None = None) -> None:
        self._tool_calls, self._reasoning = tool_calls, reasoning

    @property
    def n_calls(self) -> int:
        """The number of tool calls so far."""
        return self._tool_calls.n_calls if self._tool_calls else 0

    @property
    def n_reasoning(self) -> int:
        """The number of reasoning tokens so far."""
        return self._reasoning.n_tokens if self._reasoning else 0

    def finish_reason(self, last: Chunk) -> str | None:
        """Return why the reply ended. To be called after its chunks have been read."""
        return "tool_calls" if self.n_calls and last.finish_reason == "stop" else last.finish_reason

    def whole(self, chunks: Iterable[Chunk]) -> WholeReply:
        """Read all chunks of a reply."""
        deltas = [delta for chunk in chunks for delta in self.read(chunk)]
        text, thought = ("".join(delta.get(key, "") for delta in deltas) for key in ("content", "reasoning_content"))
        return WholeReply(text, thought, merge_tool_calls(deltas))

    def read(self, chunk: Chunk) -> Iterator[Delta]:
        """Yield the deltas that are certain after this chunk: `reasoning_content`, `content` or `tool_calls`."""
        for delta in self._reasoning_and_content(chunk):
            if self._tool_calls and "content" in delta:
                yield from self._tool_calls.feed(delta["content"])
            else:
                yield delta
        if self._tool_calls and chunk.finish_reason:
            yield from self._tool_calls.finish(is_cut=chunk.finish_reason != "stop")

    def _reasoning_and_content(self, chunk: Chunk) -> Iterator[Delta]:
        if self._reasoning:
            yield from map(dict, self._reasoning.read(chunk))
        elif chunk.text:
            yield {"content": chunk.text}


class BlockWriter(ABC):
    """Writes a reply as blocks: reasoning, text and calls, each begun, continued and ended. An interface decides what
    its blocks and events look like.
    """

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
