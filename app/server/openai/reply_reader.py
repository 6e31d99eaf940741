"""Reads a reply's chunks as deltas of OpenAI's chat format, with reasoning, content and tool calls separated.

Must not know how deltas are sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.server.openai.tool_call_parser import Delta, ToolCallParser
from app.server.reasoning import ReasoningReader
from runtime.engine import Chunk


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
