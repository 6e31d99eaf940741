"""Text through OpenAI's newer interface, /v1/responses.

Nothing is stored, so a conversation is sent whole; tools are for chat completions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from app.server.ask import Ask
from app.server.errors import ApiError
from app.server.fields import Content, Fields, ResponseFormat, SamplingFields, SchemaFormat, TextPart
from app.server.openai.chat import ChatMessage, ChatRequest
from app.server.openai.thinking import Thoughts
from app.server.reply import Event, new_id, now, timings, usage
from runtime.engine import Chunk, Engine


class InputMessage(Fields):
    """One turn."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: Content


def as_messages(value: object) -> object:
    """A text as what the user says."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class FormatFields(Fields):
    """What the text must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = Field(None, alias="schema")

    def response_format(self) -> ResponseFormat:
        """As chat completions say it."""
        schema = None if self.json_schema is None else SchemaFormat(schema=self.json_schema)
        return ResponseFormat(type=self.type, json_schema=schema)


class TextFields(Fields):
    """How text is written."""

    format: FormatFields | None = None


class ResponsesRequest(SamplingFields):
    """The body of /v1/responses."""

    input: Annotated[
        list[InputMessage],
        Field(min_length=1),
        BeforeValidator(as_messages, json_schema_input_type=str | list[InputMessage]),
    ]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    text: TextFields | None = None
    tools: list[Any] | None = None
    previous_response_id: str | None = None

    def chat(self) -> ChatRequest:
        """The same as a chat. Raises ApiError for what only OpenAI's own server can do."""
        if self.tools:
            raise ApiError(400, "tools work with /v1/chat/completions only. Ask there.", "tools")
        if self.previous_response_id:
            raise ApiError(
                400,
                "previous_response_id: responses are not stored here. Send the whole conversation as input.",
                "previous_response_id",
            )
        messages = (
            [ChatMessage(role="system", content=[TextPart(type="text", text=self.instructions)])]
            if self.instructions
            else []
        )
        messages += [ChatMessage(role=message.role, content=message.content) for message in self.input]
        own = {name: getattr(self, name) for name in SamplingFields.model_fields}
        wanted = self.text.format.response_format() if self.text and self.text.format else None
        return ChatRequest(messages=messages, max_tokens=self.max_output_tokens, response_format=wanted, **own)

    def ask(self, engine: Engine) -> Ask:
        """Raises SettingsError and ApiError."""
        return replace(self.chat().ask(engine), text_field="input")

    def form(self, engine: Engine) -> ResponsesForm:
        """How the reply is worded."""
        return ResponsesForm(engine, self.chat().thinking(engine), self)


class ResponsesForm:
    """The bodies of responses. Implements Form."""

    last_line = b""

    def __init__(self, engine: Engine, thinking: Thoughts | None, request: ResponsesRequest) -> None:
        self.thinking, self._said, self._n = thinking, "", 0
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

    def begin(self) -> Iterator[Event]:
        """A response with one message of one part."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress", []))
        yield self._event("response.output_item.added", output_index=0, item=self._item("in_progress", []))
        yield self._event("response.content_part.added", **self._place(), part=self._part())

    def piece(self, chunk: Chunk) -> Iterator[Event]:
        """Text; what the model only thinks is left out."""
        if text := self._text(chunk):
            self._said += text
            yield self._event("response.output_text.delta", **self._place(), delta=text, logprobs=[])

    def _text(self, chunk: Chunk) -> str:
        if self.thinking is None:
            return chunk.text
        return "".join(str(delta.get("content", "")) for delta in self.thinking.read(chunk))

    def end(self, last: Chunk) -> Iterator[Event]:
        """All of it once more, and the numbers."""
        status, item = self._status(last), self._item(self._status(last), [self._part()])
        yield self._event("response.output_text.done", **self._place(), text=self._said, logprobs=[])
        yield self._event("response.content_part.done", **self._place(), part=self._part())
        yield self._event("response.output_item.done", output_index=0, item=item)
        yield self._event(f"response.{status}", response=self._closed(last))

    def whole(self, chunks: Sequence[Chunk]) -> Event:
        """The reply in one body."""
        self._said = "".join(map(self._text, chunks))
        return self._closed(chunks[-1])

    def _closed(self, last: Chunk) -> Event:
        """The finished response."""
        status = self._status(last)
        body = self._response(status, [self._item(status, [self._part()])])
        if status == "incomplete":
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        n_thought = self.thinking.n_tokens if self.thinking else 0
        return body | (
            {"usage": counted(usage(last.stats, n_thought)), "timings": timings(last.stats)} if last.stats else {}
        )

    def _status(self, last: Chunk) -> str:
        return "completed" if last.finish_reason == "stop" else "incomplete"

    def _response(self, status: str, output: list[Event]) -> Event:
        return self.head | {"status": status, "output": output, "incomplete_details": None, "usage": None}

    def _item(self, status: str, content: list[Event]) -> Event:
        return {"id": self.item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _part(self) -> Event:
        return {"type": "output_text", "text": self._said, "annotations": []}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _event(self, kind: str, **more: Any) -> Event:
        self._n += 1
        return {"type": kind, "sequence_number": self._n - 1, **more}


def counted(tokens: Event) -> Event:
    """Usage in this interface's words."""
    prompt: Any = tokens["prompt_tokens_details"]
    reply: Any = tokens["completion_tokens_details"]
    return {
        "input_tokens": tokens["prompt_tokens"], "input_tokens_details": prompt | {"cache_write_tokens": 0},
        "output_tokens": tokens["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reply["reasoning_tokens"]},
        "total_tokens": tokens["total_tokens"],
    }  # fmt: skip
