"""Replies in the format of /v1/responses: one body, or a stream of numbered events.

Must not know how a request is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from app.server.errors import ApiError
from app.server.openai.common import new_id, now
from app.server.openai.reply_reader import BlockWriter, Delta, ReplyReader
from app.server.task_response import Formatter
from app.server.usage import Timings, timings, usage
from app.server.wire import Event
from runtime.engine import Chunk

Status = Literal["completed", "incomplete"]


class OutputPart(BaseModel):
    """A part of a message or of reasoning."""

    type: Literal["output_text", "reasoning_text"]
    text: str


class OutputMessage(BaseModel):
    """The model's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Status
    content: list[OutputPart]


class Reasoning(BaseModel):
    """The model's whole reasoning."""

    id: str
    type: Literal["reasoning"]
    status: Status
    summary: list[Any]
    content: list[OutputPart]


class FunctionToolCall(BaseModel):
    """The model's call of a function. The arguments are JSON text."""

    id: str
    type: Literal["function_call"]
    status: Status
    call_id: str
    name: str
    arguments: str


class ResponseObject(BaseModel):
    """The body that answers a request to /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Status
    output: list[OutputMessage | Reasoning | FunctionToolCall]
    usage: dict[str, Any]
    timings: Timings


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


class ResponsesFormatter(Formatter):
    """Writes responses. `head`: the fields that repeat the request; `keep` is called with the finished response."""

    def __init__(self, reply: ReplyReader, head: Event, keep: Callable[[Event], None]) -> None:
        self._reply, self._keep, self._output, self._n_events = reply, keep, OutputItems(), 0
        self._head: Event = {"id": new_id("resp_"), "object": "response", "created_at": now()} | head

    def first_events(self) -> Iterator[Event]:
        """Yield the start of the response."""
        for kind in ("created", "in_progress"):
            yield self._numbered(self._told(kind, self._response("in_progress")))

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """Yield events for items that start, grow and end."""
        for delta in self._reply.read(chunk):
            yield from map(self._numbered, self._output.feed(delta))

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """Yield the end of the last item, and the complete response with the numbers."""
        yield from map(self._numbered, self._output.finish(status_of(last)))
        yield self._numbered(self._told(status_of(last), self._finished(last)))

    def error_event(self, error: ApiError, body: Event) -> Event:
        """Return the response so far, with the error."""
        why = {"code": error.code or "server_error", "message": str(error)}
        return self._numbered(self._told("failed", self._response("failed") | {"error": why}))

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """Return the body of ResponseObject."""
        for chunk in chunks:
            list(self.chunk_events(chunk))
        list(self._output.finish(status_of(chunks[-1])))
        return self._finished(chunks[-1])

    def _finished(self, last: Chunk) -> Event:
        body = self._response(status_of(last))
        if last.finish_reason != "stop":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        if last.stats:
            tokens = responses_usage(usage(last.stats, self._reply.n_reasoning))
            body |= {"usage": tokens, "timings": timings(last.stats)}
        self._keep(body)
        return body

    def _response(self, status: str) -> Event:
        output = list(self._output.blocks)
        return self._head | {
            "status": status, "output": output, "error": None, "incomplete_details": None, "usage": None,
        }  # fmt: skip

    def _told(self, kind: str, response: Event) -> Event:
        return {"type": f"response.{kind}", "response": response}

    def _numbered(self, event: Event) -> Event:
        self._n_events += 1
        return event | {"sequence_number": self._n_events - 1}


def status_of(last: Chunk) -> str:
    """Return "completed" if the reply is complete, else "incomplete"."""
    return "completed" if last.finish_reason == "stop" else "incomplete"


def responses_usage(tokens: Event) -> Event:
    """Return the usage under this interface's names."""
    prompt: Any = tokens["prompt_tokens_details"]
    reply: Any = tokens["completion_tokens_details"]
    return {
        "input_tokens": tokens["prompt_tokens"], "input_tokens_details": prompt | {"cache_write_tokens": 0},
        "output_tokens": tokens["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reply["reasoning_tokens"]},
        "total_tokens": tokens["total_tokens"],
    }  # fmt: skip
