"""Chat completions as OpenAI's clients read them: one body, or a stream of deltas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from pydantic import BaseModel

from app.server.logprobs import ChatLogprobs, chat_logprobs
from app.server.openai.common import DONE, FinishReason, new_id, now
from app.server.openai.reply_reader import ReplyReader
from app.server.openai.tool_call_parser import merge_tool_calls
from app.server.task_response import Formatter
from app.server.usage import Timings, Usage, timings, usage
from app.server.wire import Event
from runtime.engine import Chunk, Engine
from runtime.engine.stats import Stats


class FunctionCall(BaseModel):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    """A function that the model wants called."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(BaseModel):
    """The model's message."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None


class ChatChoice(BaseModel):
    """The only message."""

    index: Literal[0]
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None


class ChatCompletion(BaseModel):
    """The body that answers a request to /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings


class ChatFormatter(Formatter):
    """Writes chat completions."""

    done = DONE

    def __init__(self, engine: Engine, logprobs: bool, include_usage: bool, reply: ReplyReader) -> None:
        self.engine, self.logprobs, self.include_usage, self.reply = engine, logprobs, include_usage, reply
        self.head: Event = {"id": new_id("chatcmpl-"), "created": now(), "model": engine.pair.name}

    def first_events(self) -> Iterable[Event]:
        """The role."""
        yield self._event({"role": "assistant", "content": ""})

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """A delta of text, reasoning or tool calls each; the log probabilities come with the first."""
        deltas: list[Event] = list(self.reply.read(chunk))
        if self.logprobs and chunk.logprobs:
            deltas = deltas or [{"content": ""}]
        for i, delta in enumerate(deltas):
            yield self._event(delta, () if i else [chunk])

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """The finish reason, and the numbers with the last event."""
        stats = last.stats
        numbers: Event = {"timings": timings(stats)} if stats else {}
        finish = self._event({}, finish_reason=self.finish_reason(last))
        if self.include_usage and stats:
            yield finish
            yield self.head | {"object": "chat.completion.chunk", "choices": [], "usage": self._usage(stats)} | numbers
        else:
            yield finish | numbers

    def _event(self, delta: Event, chunks: Sequence[Chunk] = (), finish_reason: str | None = None) -> Event:
        choice: Event = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": self._logprobs(chunks)}
        event = self.head | {"object": "chat.completion.chunk", "choices": [choice]}
        return event | {"usage": None} if self.include_usage else event

    def finish_reason(self, last: Chunk) -> str | None:
        """Why the reply ended, once its chunks have been read."""
        return "tool_calls" if self.reply.n_calls and last.finish_reason == "stop" else last.finish_reason

    def _usage(self, stats: Stats) -> Event:
        return usage(stats, self.reply.n_reasoning)

    def _logprobs(self, chunks: Sequence[Chunk]) -> Event | None:
        return chat_logprobs(self.engine, chunks) if self.logprobs and chunks else None

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """The body of ChatCompletion."""
        last, message = chunks[-1], self._message([delta for chunk in chunks for delta in self.reply.read(chunk)])
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self.finish_reason(last),
            "logprobs": self._logprobs(chunks),
        }
        numbers: Event = {"usage": self._usage(last.stats), "timings": timings(last.stats)} if last.stats else {}
        return self.head | {"object": "chat.completion", "choices": [choice]} | numbers

    def _message(self, deltas: Sequence[Event]) -> Event:
        """The body of AssistantMessage that the deltas add up to."""

        def text(key: str) -> str:
            return "".join(str(delta.get(key, "")) for delta in deltas)

        message: Event = {"role": "assistant", "content": text("content")}
        if calls := merge_tool_calls(deltas):
            message |= {"content": text("content") or None, "tool_calls": calls}
        if reasoning := text("reasoning_content"):
            message["reasoning_content"] = reasoning
        return message
