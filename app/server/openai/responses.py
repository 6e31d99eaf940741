"""Text through OpenAI's newer interface, /v1/responses.

Nothing is stored, so a conversation is sent whole; tools are for chat completions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from app.server.endpoint import generation_endpoint
from app.server.errors import ApiError
from app.server.fields import Content, RequestModel, TextPart
from app.server.generation import GenerationRequest
from app.server.openai.chat import ChatMessage, ChatRequest
from app.server.openai.common import JsonSchema, ResponseFormat, new_id, now
from app.server.reasoning import ReasoningReader
from app.server.task import CompletionTask
from app.server.usage import Timings, timings, usage
from app.server.wire import Event
from runtime.engine import Chunk, Engine


class InputMessage(RequestModel):
    """A message of the conversation so far."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content


def as_messages(value: object) -> object:
    """A text as the user's message."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class TextFormat(RequestModel):
    """What the text must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = Field(None, alias="schema")

    def response_format(self) -> ResponseFormat:
        """As chat completions have it."""
        schema = None if self.json_schema is None else JsonSchema(schema=self.json_schema)
        return ResponseFormat(type=self.type, json_schema=schema)


class TextOptions(RequestModel):
    """How text is written."""

    format: TextFormat | None = None


class ResponsesRequest(GenerationRequest):
    """The body of a request to /v1/responses."""

    input: Annotated[
        list[InputMessage],
        Field(min_length=1),
        BeforeValidator(as_messages, json_schema_input_type=str | list[InputMessage]),
    ]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: TextOptions | None = None
    tools: list[Any] | None = None
    previous_response_id: str | None = None

    def chat(self) -> ChatRequest:
        """The same as a chat. Raises ApiError for what only OpenAI's own server can do."""
        if self.tools:
            raise ApiError(400, "tools work with /v1/chat/completions only. Ask there.", "tools")
        if self.previous_response_id:
            message = "previous_response_id: responses are not stored here. Send the whole conversation as input."
            raise ApiError(400, message, "previous_response_id")
        messages = [ChatMessage(role=message.role, content=message.content) for message in self.input]
        if self.instructions:
            messages.insert(0, ChatMessage(role="system", content=[TextPart(type="text", text=self.instructions)]))
        shared = {name: getattr(self, name) for name in GenerationRequest.model_fields}
        text_format = self.text.format.response_format() if self.text and self.text.format else None
        return ChatRequest(messages=messages, max_tokens=self.max_output_tokens, response_format=text_format, **shared)

    def task(self, engine: Engine) -> CompletionTask:
        """Raises SettingsError and ApiError."""
        return replace(self.chat().task(engine), prompt_field="input")

    def formatter(self, engine: Engine, n_prompt: int) -> ResponsesFormatter:
        """How the reply is written."""
        return ResponsesFormatter(engine, self.chat().reasoning_reader(engine), self)


class OutputText(BaseModel):
    """A part of a response's message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]


class OutputMessage(BaseModel):
    """A response's message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: Literal["completed", "incomplete"]
    content: list[OutputText]


class ResponseObject(BaseModel):
    """The body that answers a request to /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["completed", "incomplete"]
    output: list[OutputMessage]
    usage: dict[str, Any]
    timings: Timings


class ResponsesFormatter:
    """Writes responses of one message with one part. Implements Formatter."""

    done = b""

    def __init__(self, engine: Engine, reasoning: ReasoningReader | None, request: ResponsesRequest) -> None:
        self.reasoning, self._text, self._n_events = reasoning, "", 0
        self.item_id = new_id("msg")
        sampling = request.sampling(engine.pair)
        self.head: Event = {
            "id": new_id("resp"), "object": "response", "created_at": now(), "model": engine.pair.name, "error": None,
            "metadata": {},
            "instructions": request.instructions, "max_output_tokens": request.max_output_tokens,
            "previous_response_id": None, "store": False,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "parallel_tool_calls": False,
            "tool_choice": "none", "tools": [],
        }  # fmt: skip

    def first_events(self) -> Iterator[Event]:
        """The response begins, its message, and the message's part."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress", []))
        yield self._event("response.output_item.added", output_index=0, item=self._item("in_progress", []))
        yield self._event("response.content_part.added", **self._place(), part=self._part())

    def chunk_events(self, chunk: Chunk) -> Iterator[Event]:
        """A delta of text; reasoning is left out."""
        if text := self._content(chunk):
            self._text += text
            yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _content(self, chunk: Chunk) -> str:
        if self.reasoning is None:
            return chunk.text
        return "".join(delta.get("content", "") for delta in self.reasoning.read(chunk))

    def last_events(self, last: Chunk) -> Iterator[Event]:
        """The part, the message and the response once more, whole, with the numbers."""
        status, item = self._status(last), self._item(self._status(last), [self._part()])
        yield self._event("response.output_text.done", **self._place(), text=self._text, logprobs=[])
        yield self._event("response.content_part.done", **self._place(), part=self._part())
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{status}", response=self._finished(last))

    def body(self, chunks: Sequence[Chunk]) -> Event:
        """The body of ResponseObject."""
        self._text = "".join(map(self._content, chunks))
        return self._finished(chunks[-1])

    def _finished(self, last: Chunk) -> Event:
        """The finished response."""
        status = self._status(last)
        body = self._response(status, [self._item(status, [self._part()])])
        if status == "incomplete":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        if last.stats:
            n_reasoning = self.reasoning.n_tokens if self.reasoning else 0
            body |= {"usage": responses_usage(usage(last.stats, n_reasoning)), "timings": timings(last.stats)}
        return body

    def _status(self, last: Chunk) -> str:
        return "completed" if last.finish_reason == "stop" else "incomplete"

    def _response(self, status: str, output: list[Event]) -> Event:
        return self.head | {"status": status, "output": output, "incomplete_details": None, "usage": None}

    def _item(self, status: str, content: list[Event]) -> Event:
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self) -> Event:
        return {"type": "output_text", "text": self._text, "annotations": []}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **more: Any) -> Event:
        self._n_events += 1
        return {"type": kind, "sequence_number": self._n_events - 1, **more}


def responses_usage(tokens: Event) -> Event:
    """Usage as this interface names it."""
    prompt: Any = tokens["prompt_tokens_details"]
    reply: Any = tokens["completion_tokens_details"]
    return {
        "input_tokens": tokens["prompt_tokens"], "input_tokens_details": prompt | {"cache_write_tokens": 0},
        "output_tokens": tokens["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reply["reasoning_tokens"]},
        "total_tokens": tokens["total_tokens"],
    }  # fmt: skip


ENDPOINT = generation_endpoint("/responses", ResponsesRequest, ResponseObject)
