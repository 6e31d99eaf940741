"""Replies in the format of /v1/chat/completions: one body, or a stream of deltas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from app.reply_text import ShownToken
from app.server.logprobs import ChatLogprobs, chat_logprobs
from app.server.openai.common import ChoicesFormatter, FinishReason, new_id
from app.server.openai.reply_reader import ReplyReader, WholeReply
from app.server.task_response import by_reply
from app.server.usage import ReplyProgress, Timings, Usage
from app.server.wire import Event
from runtime.engine import Chunk, Engine

if TYPE_CHECKING:
    from app.server.openai.chat import ChatRequest


class FunctionCall(BaseModel):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCall(BaseModel):
    """The model's call of a function."""

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
    """One of the messages."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None


class ChatCompletion(BaseModel):
    """The body that answers a request to /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings


class ChatFormatter(ChoicesFormatter):
    """Writes chat completions, one reply after the other. Each has a reader."""

    def __init__(self, engine: Engine, asked: ChatRequest, readers: Sequence[ReplyReader]) -> None:
        super().__init__(engine, asked, {"id": new_id("chatcmpl-")}, 1, bool(asked.logprobs))
        self.event_head = self.head | {"object": "chat.completion.chunk"}
        self._readers, self._reader, self.asks_at_end = readers, readers[0], self.shows_tokens
        self._progress = ReplyProgress(asked.return_progress, asked.timings_per_token)

    def first_events(self) -> Iterable[Event]:
        """Yield the role."""
        yield self._event({"role": "assistant", "content": ""})

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield a delta for each piece of text, reasoning or tool calls. Log probabilities come with the first one."""
        self._progress.see(chunk)
        if reading := self._progress.reading(chunk):
            yield self._event({}) | reading | self._progress.time(chunk.n_read)
        deltas: list[Event] = list(self._reader.read(chunk))
        shown = self._shown.read(chunk) if self.shows_tokens else []
        if shown:
            deltas = deltas or [{"content": ""}]
        for i, delta in enumerate(deltas):
            yield self._event(delta, () if i else shown) | self._progress.time()

    def _finish(self, last: Chunk) -> Event:
        return self._event({}, finish_reason=self._reader.finish_reason(last))

    def _advance(self, last: Chunk) -> None:
        super()._advance(last)
        if not self._tally.is_complete:
            self._reader, self._progress = self._readers[self._tally.n_ended], self._progress.again()

    def _event(self, delta: Event, shown: Sequence[ShownToken] = (), finish_reason: str | None = None) -> Event:
        index, logprobs = self._tally.n_ended, chat_logprobs(self.engine, shown) if shown else None
        choice: Event = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return self._event_of(choice)

    def _usage(self) -> Event:
        return self._tally.usage(sum(reader.n_reasoning for reader in self._readers))

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of ChatCompletion."""
        choices = [self._choice(reply) for reply in by_reply(chunks)]
        numbers = self._usage() | self._tally.timings()
        return self.head | {"object": "chat.completion", "choices": choices} | numbers

    def _choice(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of ChatChoice for the next reply."""
        choice: Event = {
            "index": self._tally.n_ended,
            "message": message(self._reader.whole(chunks)),
            "finish_reason": self._reader.finish_reason(chunks[-1]),
            "logprobs": self._logprobs(chunks) if self.shows_tokens else None,
        }
        self._advance(chunks[-1])
        return choice

    def _logprobs(self, chunks: Sequence[Chunk]) -> Event:
        return chat_logprobs(self.engine, [token for chunk in chunks for token in self._shown.read(chunk)])


def message(whole: WholeReply) -> Event:
    """Return the body of AssistantMessage."""
    found: Event = {"role": "assistant", "content": whole.content}
    if whole.calls:
        found |= {"content": whole.content or None, "tool_calls": whole.calls}
    if whole.reasoning:
        found["reasoning_content"] = whole.reasoning
    return found
