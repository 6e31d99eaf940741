"""A reply's content blocks, from text that comes in pieces."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from app.reply_text import BEGIN, END
from app.server.anthropic.response import MessageFormatter, ReplyBlocks
from app.server.openai.reply_reader import ReasoningReader, ReplyReader, ToolCallParser
from runtime.conversation.calls import HERMES, CallParser, Function
from runtime.engine import Chunk


def chunks(*pieces: str) -> list[Chunk]:
    return [*(Chunk(piece, (1,), pieces=(piece,)) for piece in pieces), Chunk("", finish_reason="stop")]


def formatter() -> MessageFormatter:
    reader = ReplyReader(ToolCallParser(CallParser(HERMES, [Function("f")])), ReasoningReader(is_open=False))
    return MessageFormatter("m", reader, 7)


THOUGHT = (BEGIN, "Hm", ".", END, "\n\nSo", ":", '<tool_call>\n{"name": "f", "arguments": {"a"', ": 1}}\n</tool_call>")


def test_thoughts_text_and_calls_are_blocks_of_their_own() -> None:
    body: Any = formatter().body(chunks(*THOUGHT))
    thinking, text, call = body["content"]
    assert thinking == {"type": "thinking", "thinking": "Hm.", "signature": ""}
    assert text == {"type": "text", "text": "So:"}
    assert (call["name"], call["input"], body["stop_reason"]) == ("f", {"a": 1}, "tool_use")
    writer = formatter()
    found: list[Any] = [event for chunk in chunks(*THOUGHT) for event in writer.chunk_events(chunk)]
    kinds = [event["delta"]["type"] if "delta" in event else event["type"] for event in found]
    assert [kind for kind, _ in groupby(kinds)] == [
        *("content_block_start", "ping", "thinking_delta", "signature_delta", "content_block_stop"),
        *("content_block_start", "text_delta", "content_block_stop"),
        *("content_block_start", "input_json_delta", "content_block_stop"),
    ]
    assert [event["index"] for event in found if event["type"] == "content_block_start"] == [0, 1, 2]


def test_a_call_that_was_cut_off_has_no_input() -> None:
    blocks = ReplyBlocks()
    begun = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a'}}
    assert [*blocks.feed({"tool_calls": [begun]}), *blocks.finish()]
    assert blocks.blocks == [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]
