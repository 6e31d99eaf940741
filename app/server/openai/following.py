"""The request that is likely to follow a chat: the conversation with its reply, and a question or results of calls.

Knows chat requests and their replies; runs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tool_call_parser import Delta, merge_tool_calls
from runtime.engine import Beginning, Chunk, Engine

if TYPE_CHECKING:
    from app.server.openai.chat import ChatRequest


def following(request: ChatRequest, engine: Engine, reply: str, reader: ReplyReader) -> Beginning | None:
    """Return what the prompts of all next requests begin with, given the text of the reply; None for an empty reply, or
    one that continues a message. Clients send content and calls back, most of them without reasoning.

    Raises ApiError and TemplateError.
    """
    if request.messages[-1].role == "assistant":  # the reply continues that message
        return None
    deltas = [*reader.read(Chunk(reply, finish_reason="stop"))]
    content, calls = "".join(delta.get("content") or "" for delta in deltas), merge_tool_calls(deltas)
    if not (content or calls):
        return None
    answered = {"role": "assistant", "content": content or None, "tool_calls": calls or None}
    first, second = (request.followed_by(engine, [answered, *answers(calls, text)]) for text in ("a", "1"))
    return Beginning(first, second)


def answers(calls: Sequence[Delta], text: str) -> list[dict[str, Any]]:
    """Return the messages after a reply, which begin with a text: results of its calls, or a question."""
    if not calls:
        return [{"role": "user", "content": text}]
    return [{"role": "tool", "content": text, "tool_call_id": call["id"]} for call in calls]
